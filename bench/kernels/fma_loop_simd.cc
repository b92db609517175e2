// Multiplies and adds as fast as the FMA units take it; compiled once per SIMD level.
#include "kernels/simd/level.h"

namespace qevict {

// 2 * 12 * 16 floating-point operations per iteration, in twelve independent chains or more.
float QEVICT_AT_LEVEL(FmaLoop)(size_t iterations) {
  const FloatTag d;
  constexpr size_t kChains = 12;
  FloatVec sums[kChains];
  for (size_t c = 0; c < kChains; ++c) sums[c] = hn::Set(d, float(c));
  const FloatVec factor = hn::Set(d, 0.999f), term = hn::Set(d, 0.001f);
  for (size_t i = 0; i < iterations * kBlockVectors; ++i) {
#pragma GCC unroll 12
    for (size_t c = 0; c < kChains; ++c) sums[c] = hn::MulAdd(sums[c], factor, term);
  }
  for (size_t c = 1; c < kChains; ++c) sums[0] = hn::Add(sums[0], sums[c]);
  return hn::GetLane(sums[0]);
}

}  // namespace qevict
