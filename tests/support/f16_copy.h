// A copy of a model whose quantized tensors are stored as f16. ggml rounds the activations of
// quantized products to 8 bits, which multiplies every difference in the order of sums; the copy
// shows a real model without that.
#pragma once

#include <string>

#include "qevict/status.h"

namespace qevict::test {

// Needs memory for both files. Errors: kBadFile, kIo.
Status WriteF16Copy(const std::string& from, const std::string& to);

}  // namespace qevict::test
