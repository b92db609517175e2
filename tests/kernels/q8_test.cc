#include "kernels/q8.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <random>
#include <vector>

namespace qevict {
namespace {

struct Group {
  explicit Group(const std::vector<float>& x) : codes(x.size()) {
    scale = EncodeQ8Group(x.data(), x.size(), codes.data(), 1);
  }
  float decoded(size_t c) const { return float(codes[c]) * F16ToF32(scale); }
  std::vector<int8_t> codes;
  F16 scale;
};

// The largest distance: half a step s, where s is |x| / 127 and at most one f16 step above it:
// 2^-10 of it, or 2^-24. The last term is for the rounding of x / s.
float Bound(float largest) {
  const float step = largest / 127.0f;
  return (step + std::max(step * 0x1p-10f, 0x1p-24f)) * 0.5f + largest * 0x1p-22f;
}

TEST(Q8Test, NoChannelIsFurtherThanHalfAStepFromItsCode) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  for (int exponent = -40; exponent <= 22; ++exponent) {  // 5 * 2^20 < 127 * 65504
    for (size_t channels : {16, 32}) {
      for (int repeat = 0; repeat < 20; ++repeat) {
        std::vector<float> x(channels);
        float largest = 0.0f;
        for (float& value : x) {
          value = std::ldexp(std::clamp(normal(rng), -4.0f, 4.0f), std::min(exponent, 20));
          largest = std::max(largest, std::abs(value));
        }
        const Group group(x);
        for (size_t c = 0; c < channels; ++c) {
          ASSERT_LE(std::abs(group.decoded(c) - x[c]), Bound(largest))
              << x[c] << " of a group up to " << largest;
        }
      }
    }
  }
}

TEST(Q8Test, TheScaleIsTheSmallestF16ThatTheLargestChannelFitsUnder) {
  for (uint32_t bits = 0; bits < 0x4afa0000u; bits += 0x1234) {  // 0 .. 127 * 65504
    const float largest = std::bit_cast<float>(bits);
    const F16 scale = F32ToF16(Q8Scale(largest));
    ASSERT_EQ(F16ToF32(scale), Q8Scale(largest)) << largest;
    const float wanted = largest * (1.0f / 127.0f);
    ASSERT_GE(F16ToF32(scale), wanted) << largest;
    if (scale != 0) {
      ASSERT_LT(F16ToF32(F16(scale - 1)), wanted) << largest;
    }
  }
}

TEST(Q8Test, WhatIsZeroStaysZeroAndASingleChannelKeepsItsSign) {
  const Group zeros(std::vector<float>(32, -0.0f));
  EXPECT_EQ(zeros.scale, 0);
  EXPECT_EQ(zeros.codes, std::vector<int8_t>(32, 0));
  std::vector<float> one(16, 0.0f);
  one[5] = -127.0f;
  const Group group(one);
  EXPECT_EQ(group.scale, F32ToF16(1.0f));
  EXPECT_EQ(group.codes[5], -127);
}

TEST(Q8Test, WhatIsBeyondTheRangeSaturates) {
  for (float x : {8319008.0f /* 127 * 65504 */, 1e7f, std::numeric_limits<float>::max()}) {
    const Group group({x, -x, 65504.0f, 1.0f});
    EXPECT_EQ(group.scale, 0x7bff);
    EXPECT_EQ(group.codes, (std::vector<int8_t>{127, -127, 1, 0}));
  }
}

TEST(Q8Test, AGroupWithANumberThatIsNotFiniteDecodesToNan) {
  for (float x : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                  std::numeric_limits<float>::quiet_NaN()}) {
    const Group group({1.0f, x, 2.0f, 3.0f});
    for (size_t c = 0; c < 4; ++c) EXPECT_TRUE(std::isnan(group.decoded(c)));
  }
}

// The example of docs/formats/full-tier-q8.md, byte by byte: head_dim 48, token in slot 17.
TEST(Q8Test, ATokenHasTheBytesOfTheFormatPage) {
  constexpr size_t kHeadDim = 48, kSlots = 32;
  std::vector<float> row(kHeadDim);
  for (size_t c = 0; c < kHeadDim; ++c)
    row[c] = c < 32 ? float(c) - 16.0f : 0.25f * (float(c) - 40.0f);
  std::vector<int8_t> k(kSlots * kHeadDim, 99), v(kSlots * kHeadDim, 99);
  std::vector<F16> k_scales(kSlots * 2, 0x5555), v_scales(kSlots * 2, 0x5555);
  WriteQ8Key(row.data(), 17, kHeadDim, {k.data(), k_scales.data()});
  WriteQ8Value(row.data(), 17, kHeadDim, {v.data(), v_scales.data()});
  const std::array<int8_t, kHeadDim> codes = {
      -127, -119, -111, -103, -95, -87, -79, -71, -63, -56, -48, -40, -32, -24, -16, -8,
      0,    8,    16,   24,   32,  40,  48,  56,  63,  71,  79,  87,  95,  103, 111, 119,
      -127, -111, -95,  -79,  -63, -48, -32, -16, 0,   16,  32,  48,  63,  79,  95,  111};
  for (size_t i = 0; i < k.size(); ++i) {
    const size_t in_block = i - 16 * kHeadDim;
    const bool key = i >= 16 * kHeadDim && in_block % 16 == 1;
    EXPECT_EQ(k[i], key ? codes[in_block / 16] : 99) << "at " << i;
    const bool value = i >= 17 * kHeadDim && i < 18 * kHeadDim;
    EXPECT_EQ(v[i], value ? codes[i - 17 * kHeadDim] : 99) << "at " << i;
  }
  for (size_t i = 0; i < k_scales.size(); ++i) {
    const F16 expected = i == 33 ? 0x3009 : i == 49 ? 0x2409 : 0x5555;
    EXPECT_EQ(k_scales[i], expected) << "at " << i;
    EXPECT_EQ(v_scales[i], expected) << "at " << i;
  }
  const KvView view{
      .slots = kSlots, .k8 = {k.data(), k_scales.data()}, .v8 = {v.data(), v_scales.data()}};
  for (size_t c = 0; c < kHeadDim; ++c) {
    EXPECT_NEAR(KeyAt(view, 17, c, kHeadDim), row[c], Bound(c < 32 ? 16.0f : 2.0f));
    EXPECT_EQ(ValueAt(view, 17, c, kHeadDim), KeyAt(view, 17, c, kHeadDim));
  }
}

TEST(Q8Test, ARowTakesTheBytesThatTheFormatPageStates) {
  EXPECT_EQ(KvRowBytes(KvType::kQ8, 64), 68u);    // 8.5 bits per element
  EXPECT_EQ(KvRowBytes(KvType::kQ8, 80), 86u);    // 8.6
  EXPECT_EQ(KvRowBytes(KvType::kQ8, 96), 102u);   // 8.5
  EXPECT_EQ(KvRowBytes(KvType::kQ8, 128), 136u);  // 8.5
  EXPECT_EQ(KvRowBytes(KvType::kQ8, 256), 272u);  // 8.5
  EXPECT_EQ(KvRowBytes(KvType::kF16, 80), 160u);
}

}  // namespace
}  // namespace qevict
