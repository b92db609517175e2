// Weights in blocks of 4 to 8 bits laid out for our own kernel (kernels/multiply_blocks), which is
// faster than ggml's.
#pragma once

#include <memory>
#include <span>

#include "core/aligned_buffer.h"
#include "core/isa.h"
#include "kernels/multiply_blocks/multiply_blocks.h"
#include "model/row_product.h"
#include "model/stored_weight.h"
#include "qevict/status.h"

namespace qevict {

class BlockWeights final : public RowProduct {
 public:
  // Of `parts`, stacked along the outputs. Null: the kernel has no layout for their types and
  // shapes, or no variant that is faster than ggml.
  static std::unique_ptr<BlockWeights> Plan(std::span<const StoredWeight> parts, uint32_t inputs,
                                            Isa isa);
  // Makes room for products on `threads` threads and lays the same parts out. bias: [outputs],
  // outlives the weights; may be null. Error kOutOfMemory.
  Status Pack(std::span<const StoredWeight> parts, const float* bias, uint32_t threads);
  void Multiply(const float* x, float* y, uint32_t rows, size_t thread, size_t threads) override;

 private:
  BlockWeights() = default;

  MultiplyBlocksFn multiply_ = nullptr;
  WeightFormat format_;
  size_t inputs_ = 0, tiles_ = 0, tile_bytes_ = 0, scratch_bytes_ = 0;
  AlignedBuffer weights_, scratch_;  // [tiles]; [threads]
  const float* bias_ = nullptr;
};

}  // namespace qevict
