// Products of a few rows with rows that lie anywhere:
//   out[r, b] = sum_c a[r, c] b[b][c]
// The biases of the quantized tier: a is what a query makes of the keys' mean, b the mean turn of a
// block of positions (codec/mean_rotation.h).
#pragma once

#include "kernels/kernel_variant.h"

namespace qevict {

struct DotRowsArgs {
  size_t rows = 0, columns = 0;     // of a and out; rows of b
  size_t depth = 0;                 // a multiple of 16
  const float* a = nullptr;         // [rows, depth] without gaps
  const float* const* b = nullptr;  // [columns], each [depth]
  float* out = nullptr;
  size_t out_stride = 0;  // floats from one row of out to the next, >= columns
};
using DotRowsFn = void (*)(const DotRowsArgs&);

// Fastest first; the last is the scalar reference, which runs anywhere.
std::span<const KernelVariant<DotRowsFn>> DotRowsVariants();

}  // namespace qevict
