#include "tools/qevict/command.h"

namespace qevict::cli {

void AddCompletionCommand(CommandLine& line) {
  line.Add({"completion", "not built yet", ""}, [](OutputFormat) -> Result<ExitStatus> {
    return Fail(ErrorCode::kUnsupported, "'completion' is not built yet");
  });
}

}  // namespace qevict::cli
