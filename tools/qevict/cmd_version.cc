#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/isa.h"
#include "model/build_facts.h"
#include "qevict/version.h"
#include "tools/qevict/command.h"
#include "tools/qevict/commit.h"
#include "tools/qevict/json_output.h"
#include "tools/qevict/print.h"

namespace qevict::cli {
namespace {

#if defined(__clang__)
constexpr char kCompiler[] = "clang " __clang_version__;
#else
constexpr char kCompiler[] = "gcc " __VERSION__;
#endif

Result<ExitStatus> PrintVersion(OutputFormat format) {
  QEVICT_ASSIGN_OR_RETURN(const Isa isa, SelectIsa());
  std::vector<std::string_view> available;
  for (const Isa level : SupportedIsas()) available.push_back(IsaName(level));
  const BuildFacts facts = GgmlBuildFacts();
  if (format == OutputFormat::kJson) {
    PrintJson({{"version", Version()},
               {"commit", BuildCommit()},
               {"compiler", kCompiler},
               {"isa", {{"used", IsaName(isa)}, {"available", available}}},
               {"ggml",
                {{"version", facts.ggml_version},
                 {"commit", facts.ggml_commit},
                 {"cpu", facts.ggml_cpu},
                 {"features", facts.cpu_features}}},
               {"llama", {{"version", facts.llama_version}}},
               {"prompt_products", facts.prompt_products}});
    return ExitStatus::kOk;
  }
  Print(stdout, "qevict {} ({})\n", Version(), BuildCommit());
  Print(stdout, "compiler   {}\n", kCompiler);
  Print(stdout, "isa        {} (this CPU has: {})\n", IsaName(isa), fmt::join(available, ", "));
  Print(stdout, "ggml       {} ({}), built for {}\n", facts.ggml_version, facts.ggml_commit,
        facts.ggml_cpu == "native" ? "this machine" : "any CPU, level chosen at run time");
  Print(stdout, "libllama   {}\n", facts.llama_version);
  Print(stdout,
        "products   blocks of 4 to 8 bits: our kernel; other types: ggml, long prompts {}\n",
        facts.prompt_products);
  Print(stdout, "features   {}\n", facts.cpu_features);
  return ExitStatus::kOk;
}

}  // namespace

void AddVersionCommand(CommandLine& line) {
  line.Add({"version", "Print the version and what this build uses",
            "  qevict version --json\n"
            "  QEVICT_ISA=scalar qevict version"},
           PrintVersion);
}

}  // namespace qevict::cli
