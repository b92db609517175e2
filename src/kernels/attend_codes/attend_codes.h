// Attention of query rows over tokens of the quantized tier, straight from their codes
// (kernels/code_layout.h), for any number of rows:
//
//   s[r, t] = q_scale[r] * key_scale[t] * sum_c q[r, c] level(key_code[t, c]) + bias[r, window(t)]
//
//   o[r, c] = sum_t exp(s[r, t] - m[r]) * value_scale[t] level(value_code[t, c])
//
// q is the query in the keys' code space (rotated and weighted, src/codec), rounded to bytes; o
// stays in the values' code space, without the head's common scale: rotating back is one step at
// the end. Both sums run over small integers. The weights exp(s - m) value_scale are rounded to
// unsigned bytes with one factor per page and row, which adds an error of at most max_t(weight) /
// 510 per token. m and d come from the exact exponentials.
#pragma once

#include <cstdint>

#include "kernels/attention_state/attention_state.h"
#include "kernels/code_layout.h"
#include "kernels/kernel_variant.h"

namespace qevict {

struct AttendCodesArgs {
  size_t rows = 0;  // query rows: the GQA group of one token, or of several
  CodeFormat format;
  const int8_t* q = nullptr;       // [rows, head_dim] without gaps, -127 .. 127
  const float* q_scale = nullptr;  // [rows]
  // Page i holds token slots [64 i, 64 (i + 1)); 64-byte aligned.
  const uint8_t* const* pages = nullptr;
  size_t begin = 0, end = 0;  // token slots; end - begin > 0; both multiples of omega
  size_t omega = 0;  // tokens per window, 1 .. 64: window w has slots [omega w, omega (w + 1))
  // Bias of window w (counted from the first of this call) and row r:
  // bias[r * bias_stride + bias_of_window[w]]. Null: no bias.
  const float* bias = nullptr;
  size_t bias_stride = 0;
  const uint32_t* bias_of_window = nullptr;  // [windows of this call]
  AttentionState state;  // in and out: [rows], [rows], [rows, head_dim]; merged with what it holds
  // Out, or null: masses[r * mass_stride + w] = sum over the tokens of window w (counted from the
  // first of this call) of exp(s[r, t] - m[r]), with the m[r] that the state holds on return.
  float* masses = nullptr;
  size_t mass_stride = 0;
};
using AttendCodesFn = void (*)(const AttendCodesArgs&);

// Fastest first; the last is the scalar reference, which runs anywhere.
std::span<const KernelVariant<AttendCodesFn>> AttendCodesVariants();

}  // namespace qevict
