#include "tools/qevict/command.h"

namespace qevict::cli {

void AddModelsCommand(CommandLine& line) {
  line.Add({"models", "not built yet", ""}, [](OutputFormat) -> Result<ExitStatus> {
    return Fail(ErrorCode::kUnsupported, "'models' is not built yet");
  });
}

}  // namespace qevict::cli
