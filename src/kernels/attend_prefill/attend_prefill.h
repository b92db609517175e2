// Attention of a block of query rows over a range of full-tier slots:
//   s[r, t] = q[r] . k[t],  t in [begin, end) and in [row_begin[r], row_end[r])
// gives the state (m, d, o) of each row.
// Blocked (rows x keys) with f32 accumulation; the score matrix exists one tile at a time. Row
// ranges express causal and sliding-window masks, so nothing here knows about positions.
//
// In bf16, which the avx512 level can and the others take for f32, queries, keys minus the mean of
// their tile (the mean's score is added in f32: what keys have in common, as those of models with
// biases do, is not rounded), weights and values are rounded to 8 bits of mantissa; sums are f32.
#pragma once

#include <cstdint>

#include "kernels/attention_state/attention_state.h"
#include "kernels/kernel_variant.h"
#include "kernels/kv_layout.h"

namespace qevict {

struct AttendPrefillArgs {
  size_t rows = 0;           // query rows (tokens x GQA group), 1 .. kPrefillMaxRows
  size_t head_dim = 0;       // a multiple of 16, at most kMaxHeadDim
  const float* q = nullptr;  // [rows, head_dim] without gaps, already scaled by the softmax scale
  KvView kv;
  size_t begin = 0, end = 0;            // slots; begin <= end <= kv.slots
  const uint32_t* row_begin = nullptr;  // [rows]
  const uint32_t* row_end =
      nullptr;           // [rows]; row_begin[r] >= row_end[r] means that the row sees no key here
  AttentionState state;  // in and out: [rows], [rows], [rows, head_dim]; merged with what it holds
  bool bf16 = false;     // whether products may be in bf16
  float* scratch =
      nullptr;  // PrefillScratchFloats(head_dim) floats, 64-byte aligned, one per thread
};
using AttendPrefillFn = void (*)(const AttendPrefillArgs&);

inline constexpr size_t kPrefillMaxRows = 128;
inline constexpr size_t kPrefillKeyTile = 128;
// One tile of keys and one of values in f32 and in bf16, the queries in bf16, one mean key, and one
// tile of scores.
constexpr size_t PrefillScratchFloats(size_t head_dim) {
  return kPrefillKeyTile * (3 * head_dim + kPrefillMaxRows) + kPrefillMaxRows * head_dim / 2 +
         head_dim;
}

// Fastest first; the last is the scalar reference, which runs anywhere.
std::span<const KernelVariant<AttendPrefillFn>> AttendPrefillVariants();

}  // namespace qevict
