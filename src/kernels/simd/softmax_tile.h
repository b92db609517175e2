// One step of the online softmax for a few rows: scores of a tile become weights exp(s - m), and
// the running (m, d) of each row moves on.
#pragma once

#include <limits>

#include "kernels/simd/exp.h"

namespace qevict {
namespace {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Replaces kVectors vectors of scores by weights and returns their sum, lane by lane.
template <size_t kVectors>
HWY_INLINE FloatVec WeighScores(float* scores, FloatVec m) {
  FloatVec x[kVectors];
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) x[v] = hn::Sub(LoadFloats(scores + v * kFloatLanes), m);
  ExpNonPositive(x);
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) StoreFloats(x[v], scores + v * kFloatLanes);
#pragma GCC unroll 8
  for (size_t v = 1; v < kVectors; ++v) x[0] = hn::Add(x[0], x[v]);
  return x[0];
}

// scores[r, t], r < kRows, t < count, a multiple of 16, rows `stride` apart: -inf where the row
// sees no key; replaced by weights. rescale[r] = exp(m_old - m_new), by which the row's o must
// shrink; d has already shrunk.
//
// The maxima of all rows come before the first exponential: the reduction of one row is a chain of
// shuffles that would otherwise hold up that row's exponentials.
template <size_t kRows>
HWY_INLINE void SoftmaxTile(float* scores, size_t stride, size_t count, float* m, float* d,
                            float* rescale) {
  const FloatTag tag;
  FloatVec largest[kRows];
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) largest[r] = LoadFloats(scores + r * stride);
  for (size_t t = kFloatLanes; t < count; t += kFloatLanes) {
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      largest[r] = hn::Max(largest[r], LoadFloats(scores + r * stride + t));
    }
  }
  constexpr size_t kPadded = (kRows + kFloatLanes - 1) / kFloatLanes * kFloatLanes;
  HWY_ALIGN float drop[kPadded] = {};
  float sums[kRows];
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
    largest[r] = hn::Max(hn::MaxOfLanes(tag, largest[r]), hn::Set(tag, m[r]));
    const float new_m = hn::GetLane(largest[r]);
    // A row that has not seen any key yet: -inf minus a finite number is not NaN.
    largest[r] = hn::Max(largest[r], hn::Set(tag, -std::numeric_limits<float>::max()));
    drop[r] = m[r] - hn::GetLane(largest[r]);
    m[r] = new_m;
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
    FloatVec sum = hn::Zero(tag);
    for (size_t t = 0; t < count; t += kKeyBlockTokens) {
      sum = hn::Add(sum, WeighScores<kBlockVectors>(scores + r * stride + t, largest[r]));
    }
    sums[r] = hn::GetLane(hn::SumOfLanes(tag, sum));
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < kPadded; r += kFloatLanes) {
    FloatVec x[1] = {LoadFloats(drop + r)};
    ExpNonPositive(x);
    StoreFloats(x[0], drop + r);
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
    rescale[r] = drop[r];
    d[r] = d[r] * drop[r] + sums[r];
  }
}

}  // namespace
}  // namespace qevict
