// `qevict run -i`: a conversation on a terminal, or from a file of messages.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "model/chat_template.h"
#include "tools/qevict/exit_status.h"
#include "tools/qevict/run_options.h"

namespace qevict::cli {

// `first_message` is answered before the first line is read. The status is kInterrupted after
// Ctrl-C at the prompt.
[[nodiscard]] Result<ExitStatus> Chat(Engine& engine, std::unique_ptr<Sequence> sequence,
                                      const ChatTemplate& chat_template, const RunOptions& options,
                                      const std::string& first_message);

}  // namespace qevict::cli
