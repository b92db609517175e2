// y = W x + b of some rows, on the threads of a graph.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qevict {

class RowProduct {
 public:
  virtual ~RowProduct() = default;
  // x: [rows, inputs], y: [rows, outputs], without gaps. Called by `threads` threads at once, each
  // with its own `thread`, and does that thread's share. The bits of y do not depend on `threads`.
  virtual void Multiply(const float* x, float* y, uint32_t rows, size_t thread, size_t threads) = 0;
};

}  // namespace qevict
