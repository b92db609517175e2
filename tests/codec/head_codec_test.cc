#include "codec/head_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tests/support/random.h"
#include "tests/support/rows.h"

namespace qevict {
namespace {

HeadTables PlainTables(uint32_t head_dim) {
  return {.weight = std::vector<float>(head_dim, 1.0f), .mean = std::vector<float>(head_dim)};
}

// Weights between 1/4 and 4.
HeadTables RandomTables(uint32_t head_dim, test::Random& random) {
  HeadTables tables = PlainTables(head_dim);
  for (float& a : tables.weight) a = std::exp2(4 * (float(random.Below(1000)) / 1000 - 0.5f));
  return tables;
}

// Of a row's channels in units of its own deviation, whose density on a sphere is in proportion to
// (1 - x^2 / head_dim)^((head_dim - 3) / 2); for large head_dim a Gaussian's.
struct Moments {
  double square = 0, product = 0, level_square = 0;  // E[x^2], E[x level], E[level^2]
};

Moments MomentsOf(uint32_t bits, uint32_t head_dim) {
  const CodeLevels& levels = LevelsOf(bits);
  Moments moments;
  double total = 0;
  for (double x = -6; x < 6; x += 1e-4) {
    const double density = std::pow(1 - x * x / head_dim, (head_dim - 3) * 0.5);
    double nearest = 100;
    for (uint32_t code = 0; code < 1u << bits; ++code) {
      const double level = double(levels.table[code]) * levels.unit;
      if (std::abs(x - level) < std::abs(x - nearest)) nearest = level;
    }
    total += density;
    moments.square += density * x * x;
    moments.product += density * x * nearest;
    moments.level_square += density * nearest * nearest;
  }
  return {moments.square / total, moments.product / total, moments.level_square / total};
}

// With s = E[x^2] / E[x c] the error is E[(x - s c)^2] = s^2 E[c^2] - E[x^2]. Rounding s to `steps`
// per octave adds a relative error of variance (ln 2 / steps)^2 / 12 to x^ = s c.
double ExpectedError(uint32_t bits, uint32_t head_dim, int steps) {
  const Moments m = MomentsOf(bits, head_dim);
  const double decoded = std::pow(m.square / m.product, 2) * m.level_square;
  const double step = std::log(2.0) / steps;
  return (decoded * (1 + step * step / 12) - m.square) / m.square;
}

// Mean squared errors D of the Lloyd-Max code of a Gaussian of variance 1, in small integers. Where
// E[x c] = E[c^2] = 1 - D, which Lloyd-Max levels have, the error above is D / (1 - D).
constexpr double kDistortion[] = {0, 0.3634, 0.1175, 0.0349, 0.0097};

struct Errors {
  double key, value;
};

Errors MeasureErrors(CodeFormat format) {
  const Rotation rotation(format.head_dim);
  const HeadCodec codec(format, PlainTables(format.head_dim), &rotation);
  const std::vector<float> mu(format.head_dim, 0.5f);
  test::Random random(31);
  Errors errors = {};
  CodedRow coded;
  std::vector<float> decoded(format.head_dim);
  const int rows = 1000;
  for (int row = 0; row < rows; ++row) {
    // Rows of different sizes, within what the scale bytes cover.
    const float size = std::exp2(float(random.Below(300)) / 100 - 1.5f);
    std::vector<float> x = test::GaussianRow(format.head_dim, random);
    for (float& channel : x) channel *= size;
    const double energy = test::Dot(x, x);
    codec.EncodeValue(x.data(), coded);
    codec.DecodeValue(coded, decoded.data());
    for (size_t c = 0; c < x.size(); ++c)
      errors.value += std::pow(double(x[c]) - decoded[c], 2) / energy / rows;
    for (size_t c = 0; c < x.size(); ++c) x[c] += mu[c];
    codec.EncodeKey(x.data(), mu.data(), coded);
    codec.DecodeKey(coded, mu.data(), decoded.data());
    for (size_t c = 0; c < x.size(); ++c)
      errors.key += std::pow(double(x[c]) - decoded[c], 2) / energy / rows;
  }
  return errors;
}

TEST(HeadCodecTest, TheErrorOfGaussianRowsIsThatOfLloydMaxWithAnIpScale) {
  for (const auto& [key_bits, value_bits] : {std::pair{2u, 2u}, {3u, 1u}, {4u, 4u}}) {
    const uint32_t head_dim = 128;
    const Errors errors = MeasureErrors({head_dim, key_bits, value_bits});
    // 128000 squared errors, each with a deviation below twice its mean: known to 0.6 %.
    const double key = ExpectedError(key_bits, head_dim, kKeyScaleSteps);
    const double value = ExpectedError(value_bits, head_dim, kValueScaleSteps);
    EXPECT_NEAR(errors.key, key, 0.02 * key) << key_bits;
    EXPECT_NEAR(errors.value, value, 0.02 * value) << value_bits;
  }
}

TEST(HeadCodecTest, TheErrorOfALongRowIsThatOfLloydMaxLevels) {
  for (uint32_t bits : {1u, 2u, 3u, 4u}) {
    const double d = kDistortion[bits], ideal = d / (1 - d);
    // The integers cost up to 0.5 % of the levels, D is given with three to four digits, and the
    // grid of scales adds 4e-5.
    EXPECT_NEAR(ExpectedError(bits, 100000, kKeyScaleSteps), ideal, 0.01 * ideal + 4e-5) << bits;
  }
}

TEST(HeadCodecTest, TheProductOfARowWithItsCodeIsItsSquareUpToTheScalesRounding) {
  test::Random random(32);
  for (uint32_t head_dim : {16u, 64u, 80u}) {
    const Rotation rotation(head_dim);
    for (uint32_t bits : {2u, 4u}) {
      const HeadCodec codec({head_dim, bits, bits}, RandomTables(head_dim, random), &rotation);
      for (int row = 0; row < 50; ++row) {
        const std::vector<float> x = test::GaussianRow(head_dim, random);
        const std::vector<float> mu = test::GaussianRow(head_dim, random);
        std::vector<float> decoded(head_dim);
        CodedRow coded;
        codec.EncodeValue(x.data(), coded);
        codec.DecodeValue(coded, decoded.data());
        // Half a step either way, and 1e-5 for f32 arithmetic.
        EXPECT_NEAR(std::log2(test::Dot(x, decoded) / test::Dot(x, x)), 0,
                    0.5 / kValueScaleSteps + 1e-5);
        codec.EncodeKey(x.data(), mu.data(), coded);
        codec.DecodeKey(coded, mu.data(), decoded.data());
        double product = 0, square = 0;
        for (size_t c = 0; c < head_dim; ++c) {
          const double a = codec.tables().weight[c], centred = double(x[c]) - mu[c];
          product += a * a * centred * (double(decoded[c]) - mu[c]);
          square += a * a * centred * centred;
        }
        EXPECT_NEAR(std::log2(product / square), 0, 0.5 / kKeyScaleSteps + 1e-5);
      }
    }
  }
}

TEST(HeadCodecTest, AScoreFromCodesIsTheScoreOfTheDecodedKey) {
  test::Random random(33);
  for (uint32_t head_dim : {16u, 64u, 96u, 256u}) {
    const Rotation rotation(head_dim);
    for (uint32_t bits : {2u, 3u, 4u}) {
      HeadTables tables = RandomTables(head_dim, random);
      tables.key_scale = 3.5f;
      const HeadCodec codec({head_dim, bits, 2}, tables, &rotation);
      const CodeLevels& levels = LevelsOf(bits);
      for (int row = 0; row < 20; ++row) {
        const std::vector<float> key = test::GaussianRow(head_dim, random);
        const std::vector<float> mu = test::GaussianRow(head_dim, random);
        const std::vector<float> q = test::GaussianRow(head_dim, random);
        CodedRow coded;
        codec.EncodeKey(key.data(), mu.data(), coded);
        std::vector<float> decoded(head_dim);
        codec.DecodeKey(coded, mu.data(), decoded.data());

        std::vector<int8_t> q_codes(head_dim);
        const float q_scale = codec.TransformQuery(q.data(), q_codes.data());
        const float key_scale = std::exp2(float(coded.scale - 128) / float(kKeyScaleSteps));
        int32_t sum = 0, magnitudes = 0;
        for (size_t c = 0; c < head_dim; ++c) {
          sum += q_codes[c] * levels.table[coded.codes[c]];
          magnitudes += std::abs(levels.table[coded.codes[c]]);
        }
        const double unit = double(q_scale) * key_scale * levels.unit;
        // Each channel of the query is rounded by at most half a unit; 1e-5 of f32 arithmetic.
        EXPECT_NEAR(unit * sum + test::Dot(q, mu), test::Dot(q, decoded),
                    unit * magnitudes * 0.5 + 1e-5 * 256)
            << head_dim << " " << bits;
      }
    }
  }
}

TEST(HeadCodecTest, AQueryUsesTheWholeRangeOfItsBytes) {
  test::Random random(34);
  const Rotation rotation(64);
  const HeadCodec codec({64, 3, 2}, RandomTables(64, random), &rotation);
  std::vector<int8_t> codes(64);
  codec.TransformQuery(test::GaussianRow(64, random).data(), codes.data());
  int largest = 0;
  for (int8_t code : codes) largest = std::max(largest, std::abs(int{code}));
  EXPECT_EQ(largest, 127);
}

TEST(HeadCodecTest, AFinishedSumIsTheSumOfDecodedValues) {
  test::Random random(35);
  for (uint32_t bits : {1u, 2u, 4u}) {
    const Rotation rotation(80);
    HeadTables tables = PlainTables(80);
    tables.value_scale = 0.25f;
    const HeadCodec codec({80, 3, bits}, tables, &rotation);
    const CodeLevels& levels = LevelsOf(bits);
    std::vector<float> sum(80), expected(80), decoded(80);
    for (float weight : {0.5f, 2.0f, 1.0f}) {
      CodedRow coded;
      codec.EncodeValue(test::GaussianRow(80, random).data(), coded);
      codec.DecodeValue(coded, decoded.data());
      const float scale = std::exp2(float(coded.scale - 128) / float(kValueScaleSteps));
      for (size_t c = 0; c < 80; ++c) {
        sum[c] += weight * scale * float(levels.table[coded.codes[c]]) * levels.unit;
        expected[c] += weight * decoded[c];
      }
    }
    codec.FinishValues(sum.data());
    // Sums below 20 of 80 terms: about 25 rounding units each.
    for (size_t c = 0; c < 80; ++c) ASSERT_NEAR(sum[c], expected[c], 25 * 20 * 0x1p-24f) << c;
  }
}

TEST(HeadCodecTest, RowsThatTheScaleBytesDoNotReachGetTheNearestLevelsOfTheLastScale) {
  test::Random random(36);
  const Rotation rotation(64);
  const HeadCodec codec({64, 4, 4}, PlainTables(64), &rotation);
  const std::vector<float> none(64), row = test::GaussianRow(64, random);
  for (float size : {0x1p-24f, 0x1p24f}) {
    std::vector<float> x = row;
    for (float& channel : x) channel *= size;
    CodedRow key, value;
    codec.EncodeKey(x.data(), none.data(), key);
    codec.EncodeValue(x.data(), value);
    EXPECT_EQ(key.scale, size < 1 ? 0 : 255);
    EXPECT_EQ(value.scale, size < 1 ? 0 : 255);
    rotation.Forward(x.data());
    for (size_t c = 0; c < 64; ++c) {
      // Too small: the level next to zero on x's side; too large: the last level.
      const int inner = size < 1 ? 8 : 15;
      ASSERT_EQ(key.codes[c], x[c] > 0 ? inner : 15 - inner) << c;
      ASSERT_EQ(value.codes[c], key.codes[c]) << c;
    }
  }
}

TEST(HeadCodecTest, ExtremesGiveFiniteRowsAndCodesInRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Rotation rotation(64);
  for (uint32_t bits : {2u, 4u}) {
    const HeadCodec codec({64, bits, bits}, PlainTables(64), &rotation);
    for (float extreme : {0.0f, 1e-45f, 1e-30f, 6e-8f, 6e4f, 1e30f, 3e38f, infinity,
                          std::numeric_limits<float>::quiet_NaN()}) {
      for (size_t channels : {1u, 2u, 64u}) {
        std::vector<float> x(64);
        for (size_t c = 0; c < channels; ++c) x[c] = c % 2 ? -extreme : extreme;
        const std::vector<float> mu(64, 1.0f);
        CodedRow key{}, value{};
        codec.EncodeKey(x.data(), mu.data(), key);
        codec.EncodeValue(x.data(), value);
        std::vector<float> decoded_key(64), decoded_value(64);
        codec.DecodeKey(key, mu.data(), decoded_key.data());
        codec.DecodeValue(value, decoded_value.data());
        std::vector<int8_t> q(64);
        EXPECT_TRUE(std::isfinite(codec.TransformQuery(x.data(), q.data())) || !(extreme <= 6e4f));
        for (size_t c = 0; c < 64; ++c) {
          ASSERT_TRUE(std::isfinite(decoded_key[c])) << extreme;
          ASSERT_TRUE(std::isfinite(decoded_value[c])) << extreme;
          ASSERT_LT(key.codes[c], 1u << bits) << extreme;
          ASSERT_LT(value.codes[c], 1u << bits) << extreme;
          ASSERT_GE(q[c], -127) << extreme;
        }
      }
    }
  }
}

TEST(HeadCodecTest, AQueryOfZerosScoresZero) {
  const Rotation rotation(64);
  const HeadCodec codec({64, 3, 2}, PlainTables(64), &rotation);
  const std::vector<float> q(64);
  std::vector<int8_t> codes(64, int8_t{1});
  EXPECT_EQ(codec.TransformQuery(q.data(), codes.data()), 0.0f);
  EXPECT_EQ(codes, std::vector<int8_t>(64));
}

TEST(HeadCodecTest, ScalesAreInUnitsOfTheTables) {
  test::Random random(37);
  const Rotation rotation(64);
  HeadTables tables = PlainTables(64);
  const std::vector<float> row = test::GaussianRow(64, random), none(64);
  const HeadCodec plain({64, 3, 2}, tables, &rotation);
  tables.key_scale = plain.KeyScale(row.data(), none.data());
  tables.value_scale = plain.ValueScale(row.data());
  const HeadCodec codec({64, 3, 2}, tables, &rotation);
  CodedRow coded;
  codec.EncodeKey(row.data(), none.data(), coded);
  EXPECT_EQ(coded.scale, 128);
  codec.EncodeValue(row.data(), coded);
  EXPECT_EQ(coded.scale, 128);
}

// Pages outlive the program that wrote them: a change of any of these bytes is a new format.
TEST(HeadCodecTest, AFixedRowHasFixedBytes) {
  const Rotation rotation(16);
  HeadTables tables = PlainTables(16);
  std::vector<float> row(16), mu(16);
  for (size_t c = 0; c < 16; ++c) {
    row[c] = float(int(c * c * 7 % 23) - 11) / 4;
    mu[c] = float(c % 3) / 8;
    tables.weight[c] = c % 8 < 4 ? 0.75f : 1.5f;
  }
  const HeadCodec codec({16, 3, 2}, tables, &rotation);
  CodedRow key{}, value{};
  codec.EncodeKey(row.data(), mu.data(), key);
  codec.EncodeValue(row.data(), value);
  const std::vector<uint8_t> key_codes(key.codes.begin(), key.codes.begin() + 16);
  const std::vector<uint8_t> value_codes(value.codes.begin(), value.codes.begin() + 16);
  EXPECT_EQ(key_codes, (std::vector<uint8_t>{5, 4, 5, 7, 3, 5, 1, 1, 4, 3, 4, 4, 3, 6, 4, 2}));
  EXPECT_EQ(key.scale, 164);
  EXPECT_EQ(value_codes, (std::vector<uint8_t>{2, 2, 2, 3, 1, 3, 0, 1, 2, 2, 2, 2, 1, 3, 2, 1}));
  EXPECT_EQ(value.scale, 145);
}

TEST(HeadTablesTest, OfAnotherSizeAreRefused) {
  HeadTables tables = PlainTables(64);
  EXPECT_TRUE(tables.Validate(64).ok());
  EXPECT_EQ(tables.Validate(80).error().code, ErrorCode::kInvalidArgument);
  tables.mean.pop_back();
  EXPECT_EQ(tables.Validate(64).error().code, ErrorCode::kInvalidArgument);
}

TEST(HeadTablesTest, NumbersThatMakeNoCodeAreRefused) {
  for (float bad : {0.0f, -1.0f, 1e30f, std::numeric_limits<float>::quiet_NaN()}) {
    HeadTables tables = PlainTables(16);
    tables.weight[3] = bad;
    EXPECT_FALSE(tables.Validate(16).ok()) << bad;
    tables = PlainTables(16);
    tables.key_scale = bad;
    EXPECT_FALSE(tables.Validate(16).ok()) << bad;
    tables = PlainTables(16);
    tables.value_scale = bad;
    EXPECT_FALSE(tables.Validate(16).ok()) << bad;
  }
  HeadTables tables = PlainTables(16);
  tables.mean[0] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(tables.Validate(16).ok());
}

}  // namespace
}  // namespace qevict
