// Lines from standard input, for a conversation.
#pragma once

#include <optional>
#include <string>

#include "qevict/status.h"

namespace qevict::cli {

class LineInput {
 public:
  // The next message without its line break; a line that ends with a backslash continues on the
  // next one. nullopt: the input has ended, or a signal came. Error kIo.
  [[nodiscard]] Result<std::optional<std::string>> Next();

 private:
  [[nodiscard]] Result<std::optional<std::string>> NextLine();
  std::string buffered_;
  bool ended_ = false;
};

}  // namespace qevict::cli
