#include "tools/qevict/command.h"

namespace qevict::cli {

void AddBenchCommand(CommandLine& line) {
  line.Add({"bench", "not built yet", ""}, [](OutputFormat) -> Result<ExitStatus> {
    return Fail(ErrorCode::kUnsupported, "'bench' is not built yet");
  });
}

}  // namespace qevict::cli
