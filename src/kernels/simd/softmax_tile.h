// One step of the online softmax: scores of a tile become weights exp(s - m), and the running (m,
// d) of the row moves on.
#pragma once

#include <limits>

#include "kernels/simd/exp.h"

namespace qevict {
namespace {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// scores[0, count), count a multiple of 16, -inf where the row sees no key but at least one finite;
// replaced by weights. Returns exp(m_old - m_new), by which the row's o must shrink; d has already
// shrunk.
HWY_INLINE float SoftmaxTile(float* scores, size_t count, float& m, float& d) {
  const FloatTag tag;
  FloatVec largest = LoadFloats(scores);
  for (size_t t = kFloatLanes; t < count; t += kFloatLanes)
    largest = hn::Max(largest, LoadFloats(scores + t));
  const FloatVec old_m = hn::Set(tag, m);
  const FloatVec new_m = hn::Max(old_m, hn::MaxOfLanes(tag, largest));
  FloatVec sum = hn::Zero(tag);
  for (size_t t = 0; t < count; t += kFloatLanes) {
    const FloatVec weight = ExpNonPositive(hn::Sub(LoadFloats(scores + t), new_m));
    sum = hn::Add(sum, weight);
    StoreFloats(weight, scores + t);
  }
  const float rescale = hn::GetLane(ExpNonPositive(hn::Sub(old_m, new_m)));
  m = hn::GetLane(new_m);
  d = d * rescale + hn::GetLane(hn::SumOfLanes(tag, sum));
  return rescale;
}

}  // namespace
}  // namespace qevict
