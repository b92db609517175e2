// Attention of query rows over the quantized tier of one (layer, KV head): everything around the
// kernel that turns queries into the codes' space and sums back.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/head_windows.h"
#include "cache/kv_shape.h"
#include "codec/window_codec.h"
#include "core/isa.h"
#include "kernels/attend_codes/attend_codes.h"
#include "kernels/dot_rows/dot_rows.h"

namespace qevict {

class CodeAttention {
 public:
  // A thread's own working room: the queries that it has turned, and that of a call.
  struct Scratch {
    std::vector<int8_t> q;
    std::vector<float> q_scale, mean_queries;
    std::vector<float> bias, m_before;
    std::vector<const float*> turns;
    std::vector<uint32_t> bias_of_window;
  };
  struct Args {
    size_t rows = 0;
    const HeadWindows* windows = nullptr;
    uint32_t first = 0, last = 0;  // attended codes [first, last)
    AttentionState state;          // out, overwritten; o stays in the values' code space
    // Out, or null: masses[r * mass_stride + w - first] = sum over code w's tokens of exp(s -
    // m[r]), with the m of the state on return.
    float* masses = nullptr;
    size_t mass_stride = 0;
  };

  CodeAttention(const KvShape& shape, Isa isa);
  // Room for `rows` over `windows` codes; Attend then allocates nothing. Throws std::bad_alloc.
  void Reserve(size_t rows, const HeadWindows& windows, Scratch& scratch) const;
  // Turns q, [rows, head_dim], already scaled by the softmax scale, into the head's code space:
  // once for any number of calls of Attend.
  void TurnQueries(const HeadWindows& windows, size_t rows, const float* q, Scratch& scratch) const;
  // With the queries that `scratch` holds. States of several calls merge in code space too.
  void Attend(const Args& args, Scratch& scratch) const;
  // o, [rows, head_dim], from the code space back to that of values.
  void TurnValuesBack(const HeadWindows& windows, size_t rows, float* o) const;

 private:
  // Biases of codes [first, last) into scratch.
  void PrepareBias(const Args& args, uint32_t first, uint32_t last, Scratch& scratch) const;

  size_t head_dim_;
  AttendCodesFn attend_codes_;
  DotRowsFn dot_rows_;
};

}  // namespace qevict
