// K and V of many KV heads, and query and state of one GQA group, for the attention benchmarks.
#pragma once

#include <cstdint>
#include <vector>

#include "core/aligned_buffer.h"
#include "kernels/attention_state/attention_state.h"
#include "kernels/kv_layout.h"

namespace qevict {

class KvHeads {
 public:
  // Filled with values in [-2, 2). tokens % 16 == 0.
  KvHeads(size_t heads, size_t tokens, size_t head_dim, KvType type = KvType::kF16);
  // One set lives at a time: a shape's variants share it.
  static const KvHeads& Shared(size_t heads, size_t tokens, size_t head_dim, KvType type);

  KvView view(size_t head) const;
  size_t size_bytes() const { return 2 * heads_ * part_bytes(); }

 private:
  // Keys, or values, of a head.
  size_t part_bytes() const { return tokens_ * KvRowBytes(type_, head_dim_); }
  Q8Rows Q8Part(size_t part) const;

  KvType type_;
  size_t heads_, tokens_, head_dim_;
  AlignedBuffer memory_;  // [heads][keys, values]
};

struct BenchState {
  BenchState(size_t rows, size_t head_dim);
  AttentionState state() { return {m.data(), d.data(), o.data()}; }
  std::vector<float> q, m, d, o;
};

// Ends the program when the outputs o / d are further apart than 1e-4, far above rounding and far
// below any mistake.
void ExpectSameOutput(BenchState& actual, BenchState& expected, const char* variant,
                      const char* shape, float tolerance = 1e-4f);

}  // namespace qevict
