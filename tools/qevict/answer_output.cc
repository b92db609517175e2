#include "tools/qevict/answer_output.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace qevict::cli {

AnswerOutput::AnswerOutput() { signal(SIGPIPE, SIG_IGN); }

void AnswerOutput::Write(std::string_view text) {
  if (!text.empty()) in_line_ = text.back() != '\n';
  while (!text.empty() && !failed()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(size_t(written));
    } else if (errno != EINTR) {
      error_number_ = errno;
    }
  }
}

Status AnswerOutput::status() const {
  if (!failed()) return {};
  return Fail(ErrorCode::kIo,
              fmt::format("the answer cannot be written to standard output: {}; check the disk or "
                          "pipe behind it",
                          std::strerror(error_number_)));
}

void AnswerOutput::EndLineOnTerminal() {
  if (in_line_ && isatty(STDOUT_FILENO)) std::fputs("\n", stderr);
  in_line_ = false;
}

}  // namespace qevict::cli
