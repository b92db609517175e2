#include "kernels/attention_state/attention_state.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace qevict {

void ResetState(AttentionState state, size_t rows, size_t head_dim) {
  std::fill_n(state.m, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(state.d, rows, 0.0f);
  std::fill_n(state.o, rows * head_dim, 0.0f);
}

void MergeState(AttentionState into, AttentionState from, size_t rows, size_t head_dim) {
  for (size_t r = 0; r < rows; ++r) {
    if (from.d[r] == 0.0f) continue;
    const float m = std::max(into.m[r], from.m[r]);
    const float scale_into = into.d[r] == 0.0f ? 0.0f : std::exp(into.m[r] - m);
    const float scale_from = std::exp(from.m[r] - m);
    into.m[r] = m;
    into.d[r] = into.d[r] * scale_into + from.d[r] * scale_from;
    float* a = into.o + r * head_dim;
    const float* b = from.o + r * head_dim;
    for (size_t c = 0; c < head_dim; ++c) a[c] = a[c] * scale_into + b[c] * scale_from;
  }
}

void FinishState(AttentionState state, size_t rows, size_t head_dim, float* out,
                 size_t out_stride) {
  for (size_t r = 0; r < rows; ++r) {
    const float inverse = state.d[r] == 0.0f ? 0.0f : 1.0f / state.d[r];
    for (size_t c = 0; c < head_dim; ++c)
      out[r * out_stride + c] = state.o[r * head_dim + c] * inverse;
  }
}

}  // namespace qevict
