// Sums and maxima over the lanes of several vectors at once: half the instructions of one after the
// other, and one chain of shuffles instead of one a vector.
#pragma once

#include "kernels/simd/dot_bytes.h"

namespace qevict {
namespace {

inline constexpr size_t kMaxReducedRows = 8;
// One float per row, in whole vectors.
inline constexpr size_t kRowLanes = kFloatLanes > kMaxReducedRows ? kFloatLanes : kMaxReducedRows;
struct RowFloats {
  FloatVec at[kRowLanes / kFloatLanes];
};

struct Plus {
  template <typename V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};
struct Larger {
  template <typename V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
};

// In every 128 bits: the four floats of a reduced, those of b, of c and of d.
template <typename Op>
HWY_INLINE FloatVec ReduceFours(Op op, FloatVec a, FloatVec b, FloatVec c, FloatVec d) {
  const FloatTag tag;
  const hn::Repartition<double, FloatTag> wide;
  const FloatVec ab = op(hn::InterleaveLower(tag, a, b), hn::InterleaveUpper(tag, a, b));
  const FloatVec cd = op(hn::InterleaveLower(tag, c, d), hn::InterleaveUpper(tag, c, d));
  const auto ab_wide = hn::BitCast(wide, ab), cd_wide = hn::BitCast(wide, cd);
  return op(hn::BitCast(tag, hn::InterleaveLower(wide, ab_wide, cd_wide)),
            hn::BitCast(tag, hn::InterleaveUpper(wide, ab_wide, cd_wide)));
}

using FourTag = hn::CappedTag<float, 4>;
using FourVec = hn::Vec<FourTag>;

// All 128-bit blocks of v reduced to one.
template <typename Op>
HWY_INLINE FourVec FoldBlocks(Op op, FloatVec v) {
#if HWY_MAX_BYTES == 64
  const hn::Half<FloatTag> half;
  const auto folded = op(hn::LowerHalf(half, v), hn::UpperHalf(half, v));
  return op(hn::LowerHalf(FourTag(), folded), hn::UpperHalf(FourTag(), folded));
#elif HWY_MAX_BYTES == 32
  return op(hn::LowerHalf(FourTag(), v), hn::UpperHalf(FourTag(), v));
#else
  (void)op;
  return v;
#endif
}

// Lane r of the result: row r reduced. Lanes from kRows on hold nothing of meaning.
template <size_t kRows, typename Op>
HWY_INLINE RowFloats ReduceRows(Op op, const FloatVec (&rows)[kRows]) {
  static_assert(kRows <= kMaxReducedRows);
  const auto row = [&](size_t r) QEVICT_INLINE_LAMBDA { return rows[r < kRows ? r : kRows - 1]; };
  const FourVec low = FoldBlocks(op, ReduceFours(op, row(0), row(1), row(2), row(3)));
  const FourVec high =
      kRows <= 4 ? low : FoldBlocks(op, ReduceFours(op, row(4), row(5), row(6), row(7)));
#if HWY_MAX_BYTES == 64
  return {hn::ZeroExtendVector(FloatTag(), hn::Combine(hn::Half<FloatTag>(), high, low))};
#elif HWY_MAX_BYTES == 32
  return {hn::Combine(FloatTag(), high, low)};
#else
  return {{low, high}};
#endif
}

}  // namespace
}  // namespace qevict
