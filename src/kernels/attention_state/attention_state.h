// The attention state of a part of the keys, one per query row (flash-attention's running softmax):
//   m = max_t s_t,   d = sum_t exp(s_t - m),   o = sum_t exp(s_t - m) v_t
// States of disjoint parts merge exactly and in any order (Ye et al., FlashInfer, "recursive
// attention"):
//   m = max(m1, m2),   d = d1 exp(m1 - m) + d2 exp(m2 - m),   o likewise;   attention = o / d.
// An empty part has m = -inf, d = 0, o = 0.
#pragma once

#include <cstddef>

namespace qevict {

// Borrowed arrays; o is [rows, head_dim], row-major without gaps.
struct AttentionState {
  float* m;
  float* d;
  float* o;
};

void ResetState(AttentionState state, size_t rows, size_t head_dim);
// into := merge(into, from).
void MergeState(AttentionState into, AttentionState from, size_t rows, size_t head_dim);
// out[r * out_stride + c] = o[r, c] / d[r]; a row that saw no key gives zeros.
void FinishState(AttentionState state, size_t rows, size_t head_dim, float* out, size_t out_stride);

}  // namespace qevict
