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
  // Room for products, shared by weights that are multiplied one after another.
  struct Scratch {
    uint8_t* base = nullptr;  // [threads, thread_bytes], 64-byte aligned
    size_t thread_bytes = 0;  // a multiple of 64
  };
  size_t scratch_bytes() const;  // that a thread needs at least; a multiple of 64
  // Lays the same parts out. bias: [outputs]; may be null. It and the scratch outlive the weights.
  // Error kOutOfMemory.
  Status Pack(std::span<const StoredWeight> parts, const float* bias, Scratch scratch);
  void Multiply(const float* x, float* y, uint32_t rows, size_t thread, size_t threads) override;

 private:
  BlockWeights() = default;

  MultiplyBlocksFn multiply_ = nullptr;
  WeightFormat format_;
  size_t inputs_ = 0, tiles_ = 0, tile_bytes_ = 0;
  AlignedBuffer weights_;  // [tiles]
  const float* bias_ = nullptr;
  Scratch scratch_;
};

}  // namespace qevict
