#include "tools/qevict/line_input.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tools/qevict/interrupt.h"

namespace qevict::cli {

Result<std::optional<std::string>> LineInput::NextLine() {
  while (true) {
    if (const size_t end = buffered_.find('\n'); end != std::string::npos) {
      std::string line = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      return line;
    }
    if (ended_) {
      if (buffered_.empty()) return std::nullopt;
      return std::exchange(buffered_, "");
    }
    char bytes[4096];
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
    if (count > 0) {
      buffered_.append(bytes, size_t(count));
    } else if (count == 0) {
      ended_ = true;
    } else if (errno == EINTR) {
      if (Interrupted()) return std::nullopt;
    } else {
      return Fail(ErrorCode::kIo,
                  fmt::format("standard input cannot be read: {}", std::strerror(errno)));
    }
  }
}

Result<std::optional<std::string>> LineInput::Next() {
  std::string message;
  while (true) {
    QEVICT_ASSIGN_OR_RETURN(const std::optional<std::string> line, NextLine());
    if (!line) return std::nullopt;
    message += *line;
    if (message.ends_with('\r')) message.pop_back();
    if (!message.ends_with('\\')) return message;
    message.back() = '\n';
  }
}

}  // namespace qevict::cli
