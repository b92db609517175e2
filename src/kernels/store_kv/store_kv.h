// Writes the keys and values of new tokens into the full tier: f32 -> f16 (round to nearest even;
// finite values beyond the f16 range become +-65504, so that no later product is infinite), K
// transposed into its block.
#pragma once

#include "kernels/kernel_variant.h"
#include "kernels/kv_layout.h"

namespace qevict {

struct StoreKvArgs {
  size_t tokens = 0, head_dim = 0;  // head_dim a multiple of 16
  const float* k = nullptr;         // token t at k + t * stride
  const float* v = nullptr;
  size_t k_stride = 0, v_stride = 0;  // in floats
  F16* k_out = nullptr;               // base of the head's K and V storage
  F16* v_out = nullptr;
  size_t slot = 0;  // slot of the first token
};
using StoreKvFn = void (*)(const StoreKvArgs&);

// Fastest first; the last is the scalar reference, which runs anywhere.
std::span<const KernelVariant<StoreKvFn>> StoreKvVariants();

}  // namespace qevict
