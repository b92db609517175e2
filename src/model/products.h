// Who multiplies the rows of a long prompt with the weights.
#pragma once

namespace qevict {

enum class Products {
  kFastest,  // oneDNN in the best type that the CPU multiplies, else ggml
  kFloat32,  // oneDNN in f32, to measure what rounding does; else ggml
  kGgml,
};

}  // namespace qevict
