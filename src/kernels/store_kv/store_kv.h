// Writes the keys and values of new tokens into the full tier, K transposed into its block:
//
//   f32 -> f16: round to nearest even; finite values beyond the f16 range become +-65504, so that
//   no later product is infinite
//
//   f32 -> int8 and scales: as kernels/q8.h says, bit for bit
#pragma once

#include "kernels/kernel_variant.h"
#include "kernels/kv_layout.h"

namespace qevict {

struct StoreKvArgs {
  size_t tokens = 0, head_dim = 0;  // head_dim a multiple of 16
  const float* k = nullptr;         // token t at k + t * stride
  const float* v = nullptr;
  size_t k_stride = 0, v_stride = 0;  // in floats
  F16* k_out = nullptr;  // base of the head's K and V storage; both null: k8_out and v8_out are
  F16* v_out = nullptr;
  Q8Rows k8_out = {}, v8_out = {};
  size_t slot = 0;  // slot of the first token
};
using StoreKvFn = void (*)(const StoreKvArgs&);

// Fastest first; the last is the scalar reference, which runs anywhere.
std::span<const KernelVariant<StoreKvFn>> StoreKvVariants();

}  // namespace qevict
