// The byte dot product of each level: four products of bytes added to a 32-bit sum, lane by lane.
// Highway 1.0.3 has none, so these are intrinsics.
//
// One side of every product is a vector of code levels, the other a factor of four bytes that all
// lanes share. Which of the two must be unsigned depends on the level and on the half of attention:
//               keys: factors are q, signed          values: factors are weights, 0 .. 255
//   AVX-512     vpdpbusd(level + offset, q)           vpdpbusd(weight, level)
//   AVX2        vpmaddubsw(level + offset, q)         vpmaddubsw(weight, level)
//   NEON        sdot(level, q)                        udot(level + offset, weight)
// Where the codes are unsigned, the offset's share is known per row before any code is read: sums
// start at -offset * (sum of the row's factors). NEON's usdot would take both signs, but is newer
// than the level's flags.
#pragma once

#include <cstring>
#include <utility>

#include "kernels/simd/level.h"

// Between the parameters and the body of a lambda. A lambda that is called more than once may
// otherwise stay a function, and its captured vectors go through memory.
#define QEVICT_INLINE_LAMBDA __attribute__((always_inline))

namespace qevict {
namespace {

using ByteTag = hn::CappedTag<uint8_t, kCacheLineBytes>;
using ByteVec = hn::Vec<ByteTag>;
using SumTag = hn::RebindToSigned<FloatTag>;
using SumVec = hn::Vec<SumTag>;

// body.operator()<0>() .. <kCount - 1>(), unrolled.
template <size_t kCount, typename Body>
HWY_INLINE void ForEachConstant(const Body& body) {
  [&]<size_t... kIndex>(std::index_sequence<kIndex...>) QEVICT_INLINE_LAMBDA {
    (body.template operator()<kIndex>(), ...);
  }
  (std::make_index_sequence<kCount>());
}

template <size_t kShift>
HWY_INLINE ByteVec ShiftLineRight(ByteVec line) {  // bits of a byte's neighbour enter at the top
  if constexpr (kShift == 0) return line;
  const hn::Repartition<uint16_t, ByteTag> wide;
  return hn::BitCast(ByteTag(), hn::ShiftRight<kShift>(hn::BitCast(wide, line)));
}
template <size_t kShift>
HWY_INLINE ByteVec ShiftLineLeft(ByteVec line) {  // ... at the bottom
  if constexpr (kShift == 0) return line;
  const hn::Repartition<uint16_t, ByteTag> wide;
  return hn::BitCast(ByteTag(), hn::ShiftLeft<kShift>(hn::BitCast(wide, line)));
}

enum class Half { kKeys, kValues };

template <Half kHalf>
inline constexpr bool kUnsignedCodes = (kHalf == Half::kKeys) == (HWY_ARCH_X86 != 0);

// The same four bytes in every lane.
HWY_INLINE ByteVec BroadcastFour(const uint8_t* bytes) {
  int32_t four;
  std::memcpy(&four, bytes, sizeof four);
  return hn::BitCast(ByteTag(), hn::Set(SumTag(), four));
}

#if HWY_MAX_BYTES == 64

template <Half kHalf>
HWY_INLINE SumVec DotBytes(SumVec sum, ByteVec codes, ByteVec factors) {
  if constexpr (kHalf == Half::kKeys) {
    return SumVec{_mm512_dpbusd_epi32(sum.raw, codes.raw, factors.raw)};
  } else {
    return SumVec{_mm512_dpbusd_epi32(sum.raw, factors.raw, codes.raw)};
  }
}

#elif HWY_MAX_BYTES == 32

// Sums of two products in 16 bits, which saturate beyond 32767: PairSum may be added up to
// kMaxPairSums times before Widen.
using PairVec = hn::Vec<hn::Repartition<int16_t, ByteTag> >;

template <Half kHalf>
constexpr int MaxPairSums(int largest_level) {  // either sign
  const int code = kUnsignedCodes<kHalf> ? 2 * largest_level : largest_level;
  const int factor = kHalf == Half::kKeys ? 127 : 255;
  return 32767 / (2 * code * factor);
}
template <Half kHalf>
HWY_INLINE PairVec PairSum(ByteVec codes, ByteVec factors) {
  if constexpr (kHalf == Half::kKeys) {
    return PairVec{_mm256_maddubs_epi16(codes.raw, factors.raw)};
  } else {
    return PairVec{_mm256_maddubs_epi16(factors.raw, codes.raw)};
  }
}
HWY_INLINE SumVec Widen(PairVec pairs) {
  return SumVec{_mm256_madd_epi16(pairs.raw, _mm256_set1_epi16(1))};
}

#else

template <Half kHalf>
HWY_INLINE SumVec DotBytes(SumVec sum, ByteVec codes, ByteVec factors) {
  if constexpr (kHalf == Half::kKeys) {
    return SumVec(
        vdotq_s32(sum.raw, vreinterpretq_s8_u8(codes.raw), vreinterpretq_s8_u8(factors.raw)));
  } else {
    return SumVec(
        vreinterpretq_s32_u32(vdotq_u32(vreinterpretq_u32_s32(sum.raw), codes.raw, factors.raw)));
  }
}

#endif

}  // namespace
}  // namespace qevict
