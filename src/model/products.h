// Who multiplies the rows of a long prompt with the weights, and how exactly.
#pragma once

namespace qevict {

enum class Products {
  kFastest,  // oneDNN in the best type that the CPU multiplies, else ggml; attention in bf16 too
  kFloat32,  // oneDNN in f32, to measure what rounding does; else ggml
  kGgml,     // as every batch; attention in f32
};

}  // namespace qevict
