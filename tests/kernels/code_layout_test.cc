#include "kernels/code_layout.h"

#include <gtest/gtest.h>

#include <cmath>

namespace qevict {
namespace {

// Mean squared error of the nearest level for a Gaussian of unit variance, by the midpoint rule
// over
// [-8, 8]; the tails beyond weigh less than 1e-13.
double MeanSquaredError(uint32_t bits) {
  const CodeLevels& levels = LevelsOf(bits);
  constexpr int kSteps = 160000;
  constexpr double kStep = 16.0 / kSteps;
  double sum = 0.0;
  for (int i = 0; i < kSteps; ++i) {
    const double x = -8.0 + (i + 0.5) * kStep;
    double least = 1e9;
    for (size_t code = 0; code < size_t{1} << bits; ++code) {
      const double error = x - double(levels.table[code]) * double(levels.unit);
      least = std::min(least, error * error);
    }
    sum += least * std::exp(-x * x / 2.0) * kStep;
  }
  return sum / std::sqrt(2.0 * std::acos(-1.0));
}

// Lloyd-Max quantizers of a Gaussian (Max, 1960, table I) have 0.3634, 0.1175, 0.03454 and
// 0.009497.
TEST(CodeLayoutTest, LevelsCostAtMostTwoPercentMoreThanTheBestForAGaussian) {
  const double best[] = {0.3634, 0.1175, 0.03454, 0.009497};
  const double stated[] = {0.3634, 0.11748, 0.03491, 0.00967};
  for (uint32_t bits = 1; bits <= 4; ++bits) {
    EXPECT_NEAR(MeanSquaredError(bits), stated[bits - 1], 5e-4 * stated[bits - 1] + 5e-6);
    EXPECT_LT(MeanSquaredError(bits), 1.02 * best[bits - 1]) << bits << " bits";
  }
}

TEST(CodeLayoutTest, LevelsAreSymmetricAscendingAndMadeUnsignedByTheirOffset) {
  for (uint32_t bits = 1; bits <= 4; ++bits) {
    const CodeLevels& levels = LevelsOf(bits);
    const size_t count = size_t{1} << bits;
    EXPECT_EQ(levels.offset, -levels.table[0]);
    for (size_t code = 0; code < count; ++code) {
      EXPECT_EQ(levels.table[code], -levels.table[count - 1 - code]);
      EXPECT_TRUE(code == 0 || levels.table[code] > levels.table[code - 1]);
    }
  }
}

}  // namespace
}  // namespace qevict
