// Attention of one GQA group's queries over a range of full-tier slots, for one decode step:
//   s[g, t] = q[g] . k[t],  t in [begin, end);  the state (m, d, o) of each row over that range
// One pass, online softmax, no score matrix kept. Every K and V load serves all rows of the group.
#pragma once

#include "kernels/attention_state/attention_state.h"
#include "kernels/kernel_variant.h"
#include "kernels/kv_layout.h"

namespace qevict {

struct AttendDecodeArgs {
  size_t group = 0;          // query rows, >= 1
  size_t head_dim = 0;       // a multiple of 16
  const float* q = nullptr;  // [group, head_dim] without gaps, already scaled by the softmax scale
  KvView kv;
  size_t begin = 0, end = 0;  // slots; begin <= end <= kv.slots; begin % 16 need not be 0
  AttentionState state;       // out, overwritten: [group], [group], [group, head_dim]
  // Out, or null: weights[g * weight_stride + t - begin] = exp(s[g, t] - m[g]), with the m of the
  // state on return.
  float* weights = nullptr;
  size_t weight_stride = 0;
};
using AttendDecodeFn = void (*)(const AttendDecodeArgs&);

// Fastest first; the last is the scalar reference, which runs anywhere.
std::span<const KernelVariant<AttendDecodeFn>> AttendDecodeVariants();

}  // namespace qevict
