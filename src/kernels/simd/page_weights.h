// From the scores of a page to what its values are multiplied by: one step of the online softmax
// for a few rows, with the weights exp(s - m) value_scale rounded to bytes, one factor per row:
//   byte = round(weight / factor),   factor = largest weight of the row / 255
// SoftmaxTile (simd/softmax_tile.h) does the step alone and reduces row by row; here the three
// reductions of all rows share their shuffles.
#pragma once

#include <limits>

#include "kernels/code_layout.h"
#include "kernels/simd/exp.h"
#include "kernels/simd/row_reduction.h"

namespace qevict {
namespace {

// Running m and d of some rows. Whole vectors are read and written from there on, lanes past the
// rows unchanged.
struct RunningSoftmax {
  float* m;
  float* d;
};

template <size_t kRows>
struct PageWeights {
  HWY_ALIGN uint8_t bytes[kRows * kCodePageTokens];
  HWY_ALIGN float factor[kRowLanes];
  HWY_ALIGN float rescale[kRowLanes];  // exp(m_old - m_new), by which the row's o must shrink
  int32_t sum_without_codes[kRows];    // what a sum of value codes starts from

  // scores [kRows, 64], overwritten, -inf outside the range; exp(s - m) goes to `p`, the same
  // shape, unless it is null. Factors include the levels' unit.
  HWY_INLINE void Weigh(float* scores, const float* value_scale, const CodeLevels& levels,
                        RunningSoftmax running, float* p);

 private:
  static constexpr size_t kVectors = kCodePageTokens / kFloatLanes;
  // Adding it rounds to an integer, which is then in the low bits.
  static constexpr float kRound = 0x1p23f;
  static HWY_INLINE void StoreBytes(const FloatVec (&rounded)[kVectors], uint8_t* to);
  HWY_INLINE void Round(const float* weights, const RowFloats& largest, const CodeLevels& levels);
};

template <size_t kRows>
HWY_INLINE void PageWeights<kRows>::Weigh(float* scores, const float* value_scale,
                                          const CodeLevels& levels, RunningSoftmax running,
                                          float* p) {
  const FloatTag tag;
  FloatVec most[kRows];
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
    most[r] = LoadFloats(scores + r * kCodePageTokens);
#pragma GCC unroll 16
    for (size_t v = 1; v < kVectors; ++v) {
      most[r] = hn::Max(most[r], LoadFloats(scores + r * kCodePageTokens + v * kFloatLanes));
    }
  }
  const RowFloats largest = ReduceRows(Larger(), most);
  HWY_ALIGN float m[kRowLanes];
  for (size_t i = 0; i < kRowLanes; i += kFloatLanes) {
    const auto is_row = hn::FirstN(tag, i < kRows ? kRows - i : 0);
    const FloatVec old = LoadFloats(running.m + i);
    const FloatVec larger = hn::Max(old, largest.at[i / kFloatLanes]);
    StoreFloats(hn::IfThenElse(is_row, larger, old), running.m + i);
    // A row that has not seen any key yet: -inf minus a finite number is not NaN.
    const FloatVec finite = hn::Max(larger, hn::Set(tag, -std::numeric_limits<float>::max()));
    StoreFloats(finite, m + i);
    FloatVec drop[1] = {hn::Sub(old, finite)};
    ExpNonPositive(drop);
    StoreFloats(drop[0], rescale + i);
  }

  // As many exponentials at once as hide each other's latency.
  constexpr size_t kStep = kBlockVectors == 1 ? 4 : kBlockVectors;
  FloatVec sum[kRows];
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
    const FloatVec row_m = hn::Set(tag, m[r]);
    sum[r] = most[r] = hn::Zero(tag);
    for (size_t t = 0; t < kCodePageTokens; t += kStep * kFloatLanes) {
      float* s = scores + r * kCodePageTokens + t;
      FloatVec x[kStep];
#pragma GCC unroll 8
      for (size_t v = 0; v < kStep; ++v) x[v] = hn::Sub(LoadFloats(s + v * kFloatLanes), row_m);
      ExpNonPositive(x);
#pragma GCC unroll 8
      for (size_t v = 0; v < kStep; ++v) {
        sum[r] = hn::Add(sum[r], x[v]);
        if (p != nullptr) StoreFloats(x[v], p + r * kCodePageTokens + t + v * kFloatLanes);
        x[v] = hn::Mul(x[v], LoadFloats(value_scale + t + v * kFloatLanes));
        most[r] = hn::Max(most[r], x[v]);
        StoreFloats(x[v], s + v * kFloatLanes);
      }
    }
  }
  const RowFloats sums = ReduceRows(Plus(), sum);
  for (size_t i = 0; i < kRowLanes; i += kFloatLanes) {
    const auto is_row = hn::FirstN(tag, i < kRows ? kRows - i : 0);
    const FloatVec old = LoadFloats(running.d + i);
    const FloatVec d = hn::MulAdd(old, LoadFloats(rescale + i), sums.at[i / kFloatLanes]);
    StoreFloats(hn::IfThenElse(is_row, d, old), running.d + i);
  }
  Round(scores, ReduceRows(Larger(), most), levels);
}

template <size_t kRows>
HWY_INLINE void PageWeights<kRows>::Round(const float* weights, const RowFloats& largest,
                                          const CodeLevels& levels) {
  const FloatTag tag;
  HWY_ALIGN float inverse[kRowLanes];
  for (size_t i = 0; i < kRowLanes; i += kFloatLanes) {
    // A row to which the page is nothing: all weights far below the one weight of 1 that d holds.
    const FloatVec most = hn::Max(largest.at[i / kFloatLanes], hn::Set(tag, 1e-30f));
    StoreFloats(hn::Mul(most, hn::Set(tag, levels.unit / 255.0f)), factor + i);
    StoreFloats(hn::Div(hn::Set(tag, 255.0f), most), inverse + i);
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
    const FloatVec scale = hn::Set(tag, inverse[r]);
    FloatVec rounded[kVectors];
#pragma GCC unroll 16
    for (size_t v = 0; v < kVectors; ++v) {
      rounded[v] = hn::MulAdd(LoadFloats(weights + r * kCodePageTokens + v * kFloatLanes), scale,
                              hn::Set(tag, kRound));
    }
    StoreBytes(rounded, bytes + r * kCodePageTokens);
    int32_t sum = 0;
    if (kUnsignedCodes<Half::kValues>) {
      for (size_t t = 0; t < kCodePageTokens; ++t) sum += bytes[r * kCodePageTokens + t];
    }
    sum_without_codes[r] = -levels.offset * sum;
  }
}

template <size_t kRows>
HWY_INLINE void PageWeights<kRows>::StoreBytes(const FloatVec (&rounded)[kVectors], uint8_t* to) {
#if HWY_MAX_BYTES == 64
  // The low byte of every lane, of two vectors at a time.
  struct Pattern {
    uint8_t bytes[64];
  };
  HWY_ALIGN static constexpr Pattern kLowBytes = [] {
    Pattern pattern{};
    for (size_t i = 0; i < 64; ++i) pattern.bytes[i] = uint8_t(4 * (i % 32));
    return pattern;
  }();
  const __m512i pick = hn::Load(ByteTag(), kLowBytes.bytes).raw;
  const auto raw = [](FloatVec v) QEVICT_INLINE_LAMBDA { return hn::BitCast(ByteTag(), v).raw; };
  const __m512i low = _mm512_permutex2var_epi8(raw(rounded[0]), pick, raw(rounded[1]));
  const __m512i high = _mm512_permutex2var_epi8(raw(rounded[2]), pick, raw(rounded[3]));
  hn::Store(ByteVec{_mm512_inserti64x4(low, _mm512_castsi512_si256(high), 1)}, ByteTag(), to);
#else
  const SumTag di;
  const hn::Rebind<uint8_t, FloatTag> narrow;
#pragma GCC unroll 16
  for (size_t v = 0; v < kVectors; ++v) {
    const SumVec low = hn::And(hn::BitCast(di, rounded[v]), hn::Set(di, 255));
    hn::StoreU(hn::DemoteTo(narrow, low), narrow, to + v * kFloatLanes);
  }
#endif
}

}  // namespace
}  // namespace qevict
