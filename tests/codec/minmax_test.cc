#include "codec/minmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/f16.h"
#include "tests/support/random.h"

namespace qevict {
namespace {

struct Window {
  std::vector<float> keys, values;
};

Window RandomWindow(MinMaxFormat format, uint64_t seed) {
  test::Random random(seed);
  Window window;
  for (size_t i = 0; i < size_t{format.omega} * format.head_dim; ++i) {
    window.keys.push_back(3.0f + random.Normal());
    window.values.push_back(random.Normal());
  }
  return window;
}

Window RoundTrip(MinMaxFormat format, const Window& window) {
  std::vector<uint8_t> bytes(format.window_bytes());
  EncodeMinMaxWindow(format, {window.keys.data(), window.values.data()}, bytes.data());
  Window decoded{window.keys, window.values};
  DecodeMinMaxWindow(format, bytes.data(), decoded.keys.data(), decoded.values.data());
  return decoded;
}

// Half a step of the ideal grid, plus what rounding zero and scale to f16 adds to a step: the zero
// moves by one f16 unit, 2^-10 of it, which the steps share, and the scale by 2^-10 of itself.
float HalfStep(float low, float high, uint32_t bits) {
  const float levels = float((1u << bits) - 1);
  return 0.5f * ((high - low + std::abs(low) * 0x1p-10f) / levels * (1 + 0x1p-10f) + 0x1p-24f) +
         1e-6f;
}

class MinMaxTest : public testing::TestWithParam<MinMaxFormat> {};

TEST_P(MinMaxTest, KeysAreWithinHalfAStepOfTheirChannelsGrid) {
  const MinMaxFormat f = GetParam();
  const Window window = RandomWindow(f, 21), decoded = RoundTrip(f, window);
  for (size_t c = 0; c < f.head_dim; ++c) {
    float low = window.keys[c], high = low;
    for (size_t t = 0; t < f.omega; ++t) {
      low = std::min(low, window.keys[t * f.head_dim + c]);
      high = std::max(high, window.keys[t * f.head_dim + c]);
    }
    for (size_t t = 0; t < f.omega; ++t)
      ASSERT_NEAR(decoded.keys[t * f.head_dim + c], window.keys[t * f.head_dim + c],
                  HalfStep(low, high, f.bits));
  }
}

TEST_P(MinMaxTest, ValuesAreWithinHalfAStepOfTheirTokensGrid) {
  const MinMaxFormat f = GetParam();
  const Window window = RandomWindow(f, 22), decoded = RoundTrip(f, window);
  for (size_t t = 0; t < f.omega; ++t) {
    const auto row = window.values.begin() + ptrdiff_t(t * f.head_dim);
    const auto [low, high] = std::minmax_element(row, row + f.head_dim);
    for (size_t c = 0; c < f.head_dim; ++c)
      ASSERT_NEAR(decoded.values[t * f.head_dim + c], row[ptrdiff_t(c)],
                  HalfStep(*low, *high, f.bits));
  }
}

TEST_P(MinMaxTest, AWindowThatWasDecodedCodesToItself) {
  const MinMaxFormat f = GetParam();
  const Window once = RoundTrip(f, RandomWindow(f, 23)), twice = RoundTrip(f, once);
  // The same codes and zeros. The largest element, below 16 from the zero, was rounded to f32, so
  // the scale may be one f16 unit larger.
  for (size_t i = 0; i < once.keys.size(); ++i)
    ASSERT_NEAR(twice.keys[i], once.keys[i], 16 * 0x1p-10f) << i;
}

TEST_P(MinMaxTest, ExtremesStayFinite) {
  const MinMaxFormat f = GetParam();
  const float extremes[] = {0.0f,
                            -0.0f,
                            1e-45f,
                            6e-8f,
                            -6e4f,
                            6e4f,
                            3e38f,
                            -3e38f,
                            std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()};
  Window window = RandomWindow(f, 24);
  for (size_t i = 0; i < window.keys.size(); ++i)
    window.keys[i] = window.values[i] = extremes[(i * 7 + i / 16) % std::size(extremes)];
  const Window decoded = RoundTrip(f, window);
  for (size_t i = 0; i < window.keys.size(); ++i) {
    ASSERT_TRUE(std::isfinite(decoded.keys[i])) << i;
    ASSERT_TRUE(std::isfinite(decoded.values[i])) << i;
  }
}

TEST_P(MinMaxTest, ARowOfEqualHalfsIsExact) {
  const MinMaxFormat f = GetParam();
  Window window = RandomWindow(f, 25);
  std::fill(window.keys.begin(), window.keys.end(), 0.333251953125f);  // an f16
  std::fill(window.values.begin(), window.values.end(), -2048.0f);
  const Window decoded = RoundTrip(f, window);
  EXPECT_EQ(decoded.keys, window.keys);
  EXPECT_EQ(decoded.values, window.values);
}

INSTANTIATE_TEST_SUITE_P(Formats, MinMaxTest,
                         testing::Values(MinMaxFormat{16, 1, 2}, MinMaxFormat{64, 8, 2},
                                         MinMaxFormat{80, 7, 4}, MinMaxFormat{128, 32, 8}));

// The worked example of docs/formats/minmax-window.md.
TEST(MinMaxExampleTest, IsTheOneOfTheFormatPage) {
  constexpr MinMaxFormat kFormat{16, 2, 2};
  static_assert(kFormat.code_bytes() == 8 && kFormat.window_bytes() == 16 + 72);
  Window window{std::vector<float>(32), std::vector<float>(32)};
  window.keys[0] = 1.0f;  // channel 0: 1, 4
  window.keys[16] = 4.0f;
  for (size_t c = 0; c < 16; ++c) window.values[16 + c] = float(c % 4) - 1.0f;
  std::vector<uint8_t> bytes(kFormat.window_bytes());
  EncodeMinMaxWindow(kFormat, {window.keys.data(), window.values.data()}, bytes.data());
  std::vector<uint8_t> expected(kFormat.window_bytes());
  expected[0] = 0x0c;                                   // channel 0: codes 0 and 3
  for (size_t i = 12; i < 16; ++i) expected[i] = 0xe4;  // token 1: codes 0, 1, 2, 3, ...
  const uint8_t key_grid[] = {0x00, 0x3c, 0x00, 0x3c}, value_grid[] = {0x00, 0xbc, 0x00, 0x3c};
  std::copy_n(key_grid, 4, expected.begin() + 16);
  std::copy_n(value_grid, 4, expected.begin() + 16 + 64 + 4);
  EXPECT_EQ(bytes, expected);
}

}  // namespace
}  // namespace qevict
