#include "tools/qevict/command.h"

namespace qevict::cli {

void AddRunCommand(CommandLine& line) {
  line.Add({"run", "not built yet", ""}, [](OutputFormat) -> Result<ExitStatus> {
    return Fail(ErrorCode::kUnsupported, "'run' is not built yet");
  });
}

}  // namespace qevict::cli
