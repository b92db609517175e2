#include "tools/qevict/command.h"

namespace qevict::cli {

void AddInfoCommand(CommandLine& line) {
  line.Add({"info", "not built yet", ""}, [](OutputFormat) -> Result<ExitStatus> {
    return Fail(ErrorCode::kUnsupported, "'info' is not built yet");
  });
}

}  // namespace qevict::cli
