// The one interface through which a model graph reaches a cache. A batch holds tokens of one or
// more sequences; its rows are those tokens in the order in which the graph sees them.
#pragma once

#include <cstddef>

#include "qevict/ids.h"

namespace qevict {

// Rows of a batch for one layer; the row of head h starts at base + row * stride + h * head_dim.
struct RowsView {
  const float* base = nullptr;
  size_t stride = 0;  // floats from one row to the next
};

// Both calls are made by `threads` threads at once, each with its own `thread` in [0, threads).
// Within a layer every Store returns before the first Attend starts; layers run one after another.
// Neither call can fail: the room for the batch's tokens was claimed before the graph ran.
class Attention {
 public:
  virtual ~Attention() = default;
  // k, v: one row per token, kv_heads * head_dim floats; keys already carry their RoPE.
  virtual void Store(LayerId layer, RowsView k, RowsView v, size_t thread, size_t threads) = 0;
  // q: one row per token, kv_heads * group * head_dim floats, RoPE done, not yet scaled.
  // out: [tokens, kv_heads * group * head_dim], row-major without gaps.
  virtual void Attend(LayerId layer, RowsView q, float* out, size_t thread, size_t threads) = 0;
};

}  // namespace qevict
