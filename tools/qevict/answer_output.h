// Standard output as the place of an answer: unbuffered, and a closed pipe or full disk is noticed.
#pragma once

#include <string>
#include <string_view>

#include "qevict/status.h"

namespace qevict::cli {

class AnswerOutput {
 public:
  AnswerOutput();  // a closed pipe becomes an error of Write instead of the end of the program

  // After a failure nothing more is written.
  void Write(std::string_view text);
  bool failed() const { return error_number_ != 0; }
  Status status() const;  // kIo when something could not be written

  // On a terminal: ends a line that is not empty, on standard error, so that what is said there
  // next begins on a line of its own while standard output holds the answer and nothing else.
  void EndLineOnTerminal();

 private:
  int error_number_ = 0;
  bool in_line_ = false;
};

}  // namespace qevict::cli
