// Products of a long prompt with the weights of one layer. Each weight is unpacked from the model
// file once per prompt, into the layout in which oneDNN multiplies fastest, and every chunk of the
// prompt reads it there: bf16 where the CPU multiplies bf16, else f32. Sums are f32.
//
// For every layer: Load, Unpack on all threads, then for every chunk PrepareRows and, on all
// threads, the products.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "model/products.h"
#include "model/row_product.h"
#include "model/weights.h"
#include "qevict/status.h"

namespace qevict {

class LayerProducts {
 public:
  // Fewer rows than this are not worth unpacking the weights for: ggml multiplies from the codes
  // (docs/decisions/0008-products-of-prompts.md).
  static constexpr uint32_t kLeastRows = 128;

  // Null: `products` is kGgml, this build has no oneDNN, or oneDNN has no fast product for this
  // CPU.
  static std::unique_ptr<LayerProducts> Create(Products products, uint32_t threads);
  // "oneDNN 2.6.3, bf16", or "ggml" where Create gives null.
  static std::string Describe(Products products);

  virtual ~LayerProducts() = default;
  // The weights to come, which must outlive their use. Null linears are left out, and those that
  // their own blocks multiply faster. Errors kOutOfMemory, kInternal.
  virtual Status Load(std::span<const Linear* const> linears) = 0;
  virtual void Unpack(size_t thread, size_t threads) = 0;
  // Before products of a chunk of so many rows. Errors kOutOfMemory, kInternal.
  virtual Status PrepareRows(uint32_t rows) = 0;
  // Null when `linear` is not among those loaded.
  virtual RowProduct* Find(const Linear& linear) = 0;
  // Behind a run: whether a call on a graph's thread has failed. Error kInternal.
  virtual Status TakeStatus() = 0;
  // What unpacked weights and working room take.
  virtual uint64_t bytes() const = 0;
};

}  // namespace qevict
