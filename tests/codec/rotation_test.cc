#include "codec/rotation.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numbers>
#include <vector>

#include "tests/support/random.h"
#include "tests/support/rows.h"

namespace qevict {
namespace {

class RotationTest : public testing::TestWithParam<uint32_t> {};

// A channel of the result is a sum of head_dim terms in at most 8 stages of additions and one
// product with up to 15 terms: about 25 rounding units of the row's norm, which is below 2 * 16.
constexpr float kRounding = 25 * 32 * 0x1p-24f;

TEST_P(RotationTest, TheColumnsAreOrthonormal) {
  const uint32_t head_dim = GetParam();
  const Rotation rotation(head_dim);
  std::vector<std::vector<float>> columns;
  for (uint32_t c = 0; c < head_dim; ++c) {
    columns.emplace_back(head_dim, 0.0f).at(c) = 1.0f;
    rotation.Forward(columns.back().data());
  }
  for (uint32_t a = 0; a < head_dim; ++a) {
    for (uint32_t b = 0; b <= a; ++b)
      ASSERT_NEAR(test::Dot(columns[a], columns[b]), a == b ? 1.0 : 0.0, 25 * 0x1p-23)
          << a << " " << b;
  }
}

TEST_P(RotationTest, TheInverseGivesTheRowBack) {
  test::Random random(GetParam());
  const Rotation rotation(GetParam());
  const std::vector<float> row = test::GaussianRow(GetParam(), random);
  std::vector<float> turned = row;
  rotation.Forward(turned.data());
  rotation.Inverse(turned.data());
  for (size_t c = 0; c < row.size(); ++c) ASSERT_NEAR(turned[c], row[c], 2 * kRounding) << c;
}

TEST_P(RotationTest, DotProductsStay) {
  test::Random random(GetParam() + 1);
  const Rotation rotation(GetParam());
  std::vector<float> a = test::GaussianRow(GetParam(), random),
                     b = test::GaussianRow(GetParam(), random);
  const double before = test::Dot(a, b);
  rotation.Forward(a.data());
  rotation.Forward(b.data());
  // Each channel is off by at most kRounding and meets channels whose norm is below 32.
  EXPECT_NEAR(test::Dot(a, b), before, 2 * 32 * kRounding * std::sqrt(double(GetParam())));
}

TEST_P(RotationTest, AChannelIsSpreadOverAllChannels) {
  const uint32_t head_dim = GetParam(), power = head_dim & -head_dim;
  const Rotation rotation(head_dim);
  for (uint32_t c = 0; c < head_dim; ++c) {
    std::vector<float> row(head_dim);
    row[c] = 1.0f;
    rotation.Forward(row.data());
    // An entry of H is 1 / sqrt(power), one of C at most sqrt(2 / odd).
    for (float x : row) ASSERT_LE(std::abs(x), std::sqrt(2.0f / float(head_dim)) * 1.0001f);
    if (power == head_dim) {
      for (float x : row) ASSERT_NEAR(std::abs(x), 1 / std::sqrt(float(head_dim)), 0x1p-22f);
    }
  }
}

TEST_P(RotationTest, ARowThatIsTheSameInEveryChannelIsSpreadToo) {
  const Rotation rotation(GetParam());
  std::vector<float> row(GetParam(), 1.0f);
  rotation.Forward(row.data());
  // Without signs all of the energy, head_dim, would lie in channel 0. With pseudo-random signs a
  // channel is nearly normal; 4.5 deviations are rarer than one in 100000 of a few thousand.
  for (float x : row) EXPECT_LE(std::abs(x), 4.5f);
}

INSTANTIATE_TEST_SUITE_P(HeadDims, RotationTest, testing::Range(16u, 257u, 16u));

TEST(RotationSignsTest, AreTheOnesThatEveryCodeSoFarWasWrittenWith) {
  // The transform of channel c alone starts with its sign: row 0 of H and of C is positive.
  const Rotation rotation(64);
  uint64_t signs = 0;
  for (uint32_t c = 0; c < 64; ++c) {
    float row[64] = {};
    row[c] = 1.0f;
    rotation.Forward(row);
    signs |= uint64_t{row[0] < 0} << c;
  }
  EXPECT_EQ(signs, 0x0cecfb078998434du);
}

TEST(RotationOrderTest, IsHadamardOverThePowerOfTwoAndDctOverTheRest) {
  // Against the definition: entry (i, h) of R e_c, c = j * power + g.
  for (uint32_t head_dim : {80u, 96u}) {
    const uint32_t power = head_dim & -head_dim, odd = head_dim / power;
    const Rotation rotation(head_dim);
    for (uint32_t c = 0; c < head_dim; ++c) {
      std::vector<float> row(head_dim);
      row[c] = 1.0f;
      rotation.Forward(row.data());
      const uint32_t j = c / power, g = c % power;
      const float sign = row[0] < 0 ? -1.0f : 1.0f;
      for (uint32_t i = 0; i < odd; ++i) {
        for (uint32_t h = 0; h < power; ++h) {
          const double hadamard = (std::popcount(h & g) % 2 ? -1 : 1) / std::sqrt(double(power));
          const double dct = std::cos(std::numbers::pi * i * (2 * j + 1) / (2 * odd)) *
                             std::sqrt((i == 0 ? 1.0 : 2.0) / odd);
          ASSERT_NEAR(row[i * power + h], sign * hadamard * dct, 0x1p-22) << c;
        }
      }
    }
  }
}

}  // namespace
}  // namespace qevict
