// The vocabulary of a tiny model: every byte can be spelt, a few common pairs are merged, the rest
// is padding.
#pragma once

#include "support/tiny_model.h"

namespace qevict::test {

void SetTinyTokenizer(gguf_context* metadata, TinyTokenizer kind, uint32_t vocab);

// Ids [first, last) stand for text in both kinds.
struct TextTokens {
  uint32_t first, last;
};
TextTokens TextTokensOf(TinyTokenizer kind);

}  // namespace qevict::test
