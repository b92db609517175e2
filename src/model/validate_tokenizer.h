// libllama asserts, and so ends the process, on some vocabularies that a damaged file can hold.
// This refuses them first.
#pragma once

#include "model/gguf_file.h"
#include "qevict/status.h"

namespace qevict {

// Errors: kUnsupported (a tokenizer model other than "llama" and "gpt2"), kBadFile (arrays that
// disagree in length or type, a token that occurs twice, special ids outside the vocabulary, merges
// that are no pairs, bytes that no token can spell).
Status ValidateTokenizer(const GgufFile& file);

}  // namespace qevict
