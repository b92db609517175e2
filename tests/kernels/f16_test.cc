// The scalar conversions are the reference of every SIMD level, so they are checked against the
// definition of binary16, not against themselves.
#include "kernels/f16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace qevict {
namespace {

TEST(F16Test, EveryHalfHasTheValueThatIts16BitsDefine) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const int exponent = int(h >> 10 & 0x1f), mantissa = int(h & 0x3ff);
    const float sign = h & 0x8000 ? -1.0f : 1.0f;
    const float value = F16ToF32(F16(h));
    ASSERT_EQ(std::signbit(value), std::signbit(sign)) << h;
    if (exponent == 31) {
      ASSERT_TRUE(mantissa == 0 ? std::isinf(value) : std::isnan(value)) << h;
    } else if (exponent == 0) {
      ASSERT_EQ(value, sign * std::ldexp(float(mantissa), -24)) << h;
    } else {
      ASSERT_EQ(value, sign * std::ldexp(float(1024 + mantissa), exponent - 25)) << h;
    }
  }
}

TEST(F16Test, EveryHalfSurvivesARoundTrip) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float value = F16ToF32(F16(h));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(F16ToF32(F32ToF16(value)))) << h;
    } else {
      ASSERT_EQ(F32ToF16(value), h);
    }
  }
}

TEST(F16Test, FloatsRoundToTheNearestHalfAndTiesToEven) {
  std::mt19937 rng(1);
  for (int i = 0; i < 1'000'000; ++i) {
    const float f = std::bit_cast<float>(uint32_t(rng()));
    if (!(std::abs(f) < 65504.0f)) continue;
    const F16 h = F32ToF16(f);
    const double error = std::abs(double(F16ToF32(h)) - double(f));
    for (const uint32_t neighbour : {h - 1u, h + 1u}) {  // same sign, one step down and up
      if ((neighbour & 0x7fffu) >= 0x7c00u || ((neighbour ^ h) & 0x8000u) != 0) continue;
      const double other = std::abs(double(F16ToF32(F16(neighbour))) - double(f));
      ASSERT_TRUE(error < other || (error == other && h % 2 == 0)) << f;
    }
  }
}

TEST(F16Test, FiniteFloatsBeyondTheRangeSaturate) {
  for (float f : {65504.0f, 65519.99f, 65520.0f, 65536.0f, std::numeric_limits<float>::max()}) {
    EXPECT_EQ(F32ToF16(f), 0x7bff);
    EXPECT_EQ(F32ToF16(-f), 0xfbff);
  }
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(F32ToF16(-std::numeric_limits<float>::infinity()), 0xfc00);
}

}  // namespace
}  // namespace qevict
