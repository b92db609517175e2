#include "model/control_tokens.h"

#include <llama.h>

#include <algorithm>

namespace qevict {

ControlTokens::ControlTokens(const llama_vocab* vocab) {
  for (Token token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
    // The kinds that libllama finds in a text only when it is told to parse special tokens.
    const uint32_t attributes = llama_vocab_get_attr(vocab, token);
    if (!(attributes & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN))) continue;
    std::string text = llama_vocab_get_text(vocab, token);
    if (text.empty()) continue;
    longest_bytes_ = std::max(longest_bytes_, text.size());
    const uint8_t first_byte = uint8_t(text[0]);
    by_first_byte_[first_byte].push_back({std::move(text), token,
                                          (attributes & LLAMA_TOKEN_ATTR_LSTRIP) != 0,
                                          (attributes & LLAMA_TOKEN_ATTR_RSTRIP) != 0});
  }
  for (auto& entries : by_first_byte_) {
    std::ranges::stable_sort(
        entries, [](const Entry& a, const Entry& b) { return a.text.size() > b.text.size(); });
  }
}

std::optional<ControlTokens::Match> ControlTokens::Find(std::string_view text, size_t from) const {
  for (size_t at = from; at < text.size(); ++at) {
    for (const Entry& entry : by_first_byte_[uint8_t(text[at])]) {
      if (text.substr(at).starts_with(entry.text)) {
        return Match{at, entry.text.size(), entry.token, entry.strips_before, entry.strips_after};
      }
    }
  }
  return std::nullopt;
}

size_t ControlTokens::OpenEnd(std::string_view text) const {
  const size_t first = text.size() - std::min(text.size(), longest_bytes_);
  for (size_t at = first; at < text.size(); ++at) {
    const std::string_view end = text.substr(at);
    for (const Entry& entry : by_first_byte_[uint8_t(text[at])]) {
      if (entry.text.size() > end.size() && entry.text.starts_with(end)) return end.size();
    }
  }
  return 0;
}

}  // namespace qevict
