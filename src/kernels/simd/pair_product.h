// Pairs of bf16 as elements of the product of simd/block_product.h, on CPUs that multiply pairs of
// bf16 and add both products to an f32 (AVX512-BF16): twice the rate of f32. A pair holds two
// neighbours along the sum, the first in its low half.
#pragma once

#include "kernels/simd/block_product.h"

#if defined(__AVX512BF16__)
#define QEVICT_HAVE_PAIRS 1

namespace qevict {
namespace {

struct Pair {
  uint32_t bits;
};
using PairTag = hn::Rebind<uint32_t, FloatTag>;
using PairVec = hn::Vec<PairTag>;

HWY_INLINE void StorePairs(PairVec v, Pair* to) {
  hn::StoreU(v, PairTag(), reinterpret_cast<uint32_t*>(to));
}
// Lane by lane.
HWY_INLINE PairVec MakePairs(FloatVec low, FloatVec high) {
  const auto widen = [](FloatVec v) {
    return PairVec{_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(v.raw))};
  };
  return hn::Or(widen(low), hn::ShiftLeft<16>(widen(high)));
}
// Pairs of neighbours, `count` floats, a multiple of 16.
HWY_INLINE void NarrowFloats(const float* from, size_t count, Pair* to) {
  for (size_t i = 0; i < count; i += 2 * kFloatLanes, to += kFloatLanes) {
    if (i + kFloatLanes < count) {
      StorePairs(PairVec{(__m512i)_mm512_cvtne2ps_pbh(LoadFloats(from + i + kFloatLanes).raw,
                                                      LoadFloats(from + i).raw)},
                 to);
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                          (__m256i)_mm512_cvtneps_pbh(LoadFloats(from + i).raw));
    }
  }
}

template <>
struct Operand<Pair> {
  using Value = Pair;
  using Vec = PairVec;
  static HWY_INLINE Vec Load(const Pair* from) {
    return hn::LoadU(PairTag(), reinterpret_cast<const uint32_t*>(from));
  }
  static HWY_INLINE Vec Set(Pair pair) { return hn::Set(PairTag(), pair.bits); }
  static HWY_INLINE FloatVec MulAdd(Vec a, Vec b, FloatVec c) {
    return FloatVec{_mm512_dpbf16_ps(c.raw, (__m512bh)a.raw, (__m512bh)b.raw)};
  }
};

}  // namespace
}  // namespace qevict

#endif
