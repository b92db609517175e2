// How far two rows of logits are apart.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace qevict::test {

struct LogitDifference {
  double cosine = 0.0;
  float rms = 0.0f;      // root of the mean squared difference: the numerical noise of one logit
  float largest = 0.0f;  // of the differences' magnitudes
};

// Rows of the same size. Raw logits, so a shift common to all counts as a difference.
inline LogitDifference CompareLogits(std::span<const float> a, std::span<const float> b) {
  double ab = 0.0, aa = 0.0, bb = 0.0, squares = 0.0;
  LogitDifference result;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += double(a[i]) * b[i];
    aa += double(a[i]) * a[i];
    bb += double(b[i]) * b[i];
    const double difference = double(a[i]) - b[i];
    squares += difference * difference;
    result.largest = std::max(result.largest, float(std::abs(difference)));
  }
  result.cosine = ab / std::sqrt(aa * bb);
  result.rms = float(std::sqrt(squares / double(a.size())));
  return result;
}

}  // namespace qevict::test
