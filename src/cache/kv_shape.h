// The shape of a model's KV state, as far as a cache needs it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kv_layout.h"

namespace qevict {

struct KvShape {
  uint32_t layers = 0, kv_heads = 0, group = 0, head_dim = 0;
  // Tokens that a sliding-window layer sees, its own included; 0: no such layers.
  uint32_t swa_window = 0;
  std::vector<bool> swa_layer;  // [layers]; empty when swa_window is 0
  float score_scale = 1.0f;     // multiplies q . k

  bool is_swa(uint32_t layer) const { return swa_window != 0 && swa_layer[layer]; }
  // Keys and values of one token in one layer.
  uint64_t layer_token_bytes(KvType type = KvType::kF16) const {
    return uint64_t{2} * kv_heads * KvRowBytes(type, head_dim);
  }
};

}  // namespace qevict
