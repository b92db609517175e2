// Where the text of control tokens ("<|im_end|>") stands in a text: what a chat template may write
// and a person's message may not.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/token.h"

struct llama_vocab;

namespace qevict {

class ControlTokens {
 public:
  struct Match {
    size_t offset = 0, bytes = 0;  // in the text
    Token token = 0;
    bool strips_before = false, strips_after = false;  // white space beside it belongs to it
  };

  explicit ControlTokens(const llama_vocab* vocab);

  // The first control token's text that begins at or after `from`; the longest at its place.
  std::optional<Match> Find(std::string_view text, size_t from) const;
  // How many bytes at the end of `text` begin a control token's text that further text could
  // complete; 0 when none do.
  size_t OpenEnd(std::string_view text) const;

 private:
  struct Entry {
    std::string text;
    Token token;
    bool strips_before, strips_after;
  };
  std::array<std::vector<Entry>, 256> by_first_byte_;  // longest first
  size_t longest_bytes_ = 0;
};

}  // namespace qevict
