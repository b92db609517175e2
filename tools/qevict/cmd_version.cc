#include <fmt/format.h>

#include "core/isa.h"
#include "qevict/version.h"
#include "tools/qevict/command.h"
#include "tools/qevict/json_output.h"

namespace qevict::cli {
namespace {

Result<ExitStatus> PrintVersion(OutputFormat format) {
  QEVICT_ASSIGN_OR_RETURN(const Isa isa, SelectIsa());
  if (format == OutputFormat::kJson) {
    PrintJson({{"version", Version()}, {"isa", IsaName(isa)}});
  } else {
    fmt::print("qevict {}\nisa     {}\n", Version(), IsaName(isa));
  }
  return ExitStatus::kOk;
}

}  // namespace

void AddVersionCommand(CommandLine& line) {
  line.Add({"version", "Print the version and what this build uses", "  qevict version --json"},
           PrintVersion);
}

}  // namespace qevict::cli
