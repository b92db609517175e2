#include "codec/table_builder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/random.h"

namespace qevict {
namespace {

constexpr uint32_t kTableHeadDim = 64;
constexpr CodeFormat kTableFormat{kTableHeadDim, 3, 2};

RopePairs Pairs() {
  RopePairs pairs{.head_dim = kTableHeadDim, .layout = RopePairs::Layout::kHalves, .angles = {}};
  for (uint32_t i = 0; i < kTableHeadDim / 2; ++i)
    pairs.angles.push_back(std::pow(10000.0, -2.0 * i / kTableHeadDim));
  return pairs;
}

// A head whose keys before RoPE are mean + deviation * noise and whose queries are reach * noise.
struct Head {
  std::vector<float> mean, deviation, reach;
};

Head PlainHead() {
  return {std::vector<float>(kTableHeadDim), std::vector<float>(kTableHeadDim, 1.0f),
          std::vector<float>(kTableHeadDim, 1.0f)};
}

class TableBuilderTest : public testing::Test {
 protected:
  void Feed(TableBuilder& builder, const Head& head, uint32_t first, uint32_t tokens) {
    test::Random random(41);
    std::vector<float> key(kTableHeadDim), value(kTableHeadDim), q(kTableHeadDim);
    for (uint32_t p = first; p < first + tokens; ++p) {
      for (uint32_t c = 0; c < kTableHeadDim; ++c) {
        key[c] = head.mean[c] + head.deviation[c] * random.Normal();
        value[c] = random.Normal() * 0.125f;
        q[c] = head.reach[c] * random.Normal();
      }
      const PositionTurn at(blocks_.pairs(), Position(p));
      Turn(blocks_.pairs(), at.turn.data(), key.data(), key.data());
      Turn(blocks_.pairs(), at.turn.data(), q.data(), q.data());
      builder.AddToken(key.data(), value.data(), at);
      builder.AddQuery(q.data());
    }
  }

  HeadTables Measure(const Head& head, uint32_t first, uint32_t tokens) {
    TableBuilder builder(kTableFormat, &blocks_, &rotation_);
    Feed(builder, head, first, tokens);
    return builder.Build();
  }

  MeanRotation blocks_{Pairs(), Position(4), 8};
  Rotation rotation_{kTableHeadDim};
};

TEST_F(TableBuilderTest, FindsTheMeanBeforeRope) {
  Head head = PlainHead();
  for (uint32_t c = 0; c < kTableHeadDim; ++c) head.mean[c] = float(c % 7) - 3;
  const HeadTables tables = Measure(head, 1000, 2000);
  // Five deviations of a mean of 2000.
  for (uint32_t c = 0; c < kTableHeadDim; ++c)
    EXPECT_NEAR(tables.mean[c], head.mean[c], 5 / std::sqrt(2000.0)) << c;
}

TEST_F(TableBuilderTest, WeightsAreTheRootOfReachOverDeviationTiedInPairsWithGeometricMeanOne) {
  Head head = PlainHead();
  for (uint32_t c = 0; c < kTableHeadDim; ++c) {
    head.deviation[c] = 0.5f + float(c % 5);
    head.reach[c] = 0.25f + float(c % 3);
  }
  const HeadTables tables = Measure(head, 100, 4000);
  std::vector<double> expected(kTableHeadDim);
  double log_sum = 0;
  for (uint32_t i = 0; i < kTableHeadDim / 2; ++i) {
    const uint32_t j = i + kTableHeadDim / 2;
    const double w = (std::pow(head.reach[i], 2) + std::pow(head.reach[j], 2)) / 2;
    const double s = (std::pow(head.deviation[i], 2) + std::pow(head.deviation[j], 2)) / 2;
    expected[i] = expected[j] = std::pow(w / s, 0.25);
    log_sum += 2 * std::log(expected[i]) / kTableHeadDim;
  }
  double product = 1;
  for (uint32_t c = 0; c < kTableHeadDim; ++c) {
    // Energies of 4000 rows are within 5 * sqrt(2 / 4000) = 11 %, both of them; a is a fourth root.
    EXPECT_NEAR(tables.weight[c], expected[c] / std::exp(log_sum), 0.06 * tables.weight[c]) << c;
    EXPECT_EQ(tables.weight[c], tables.weight[(c + kTableHeadDim / 2) % kTableHeadDim]);
    product *= tables.weight[c];
  }
  EXPECT_NEAR(product, 1.0, 1e-4);
}

TEST_F(TableBuilderTest, TheSameRowsAtOtherPositionsGiveTheSameTables) {
  Head head = PlainHead();
  for (uint32_t c = 0; c < kTableHeadDim; ++c) {
    head.mean[c] = c == 5 ? 20.0f : 0.5f;
    head.deviation[c] = 0.5f + float(c % 5);
    head.reach[c] = 0.25f + float(c % 3);
  }
  const HeadTables near = Measure(head, 4, 500), far = Measure(head, 500000, 500);
  for (uint32_t c = 0; c < kTableHeadDim; ++c) {
    // f32 rounding of keys below 32, and its effect on the weights.
    EXPECT_NEAR(near.mean[c], far.mean[c], 32 * 0x1p-22) << c;
    EXPECT_NEAR(near.weight[c], far.weight[c], 1e-4) << c;
  }
}

TEST_F(TableBuilderTest, AMeanThatABlockDoesNotRemoveCountsAsDeviation) {
  // Pair 0 turns by 8 radians in a block, which leaves 96 % of its mean; the slowest by 0.001.
  Head fast = PlainHead(), slow = PlainHead();
  fast.mean[0] = 30.0f;
  slow.mean[kTableHeadDim / 2 - 1] = 30.0f;
  const HeadTables fast_tables = Measure(fast, 4, 500), slow_tables = Measure(slow, 4, 500);
  EXPECT_LT(fast_tables.weight[0], 0.35f * fast_tables.weight[1]);
  const float* weight = slow_tables.weight.data();
  EXPECT_NEAR(weight[kTableHeadDim / 2 - 1], weight[kTableHeadDim / 2 - 2], 0.1f);
}

// As models with biases on their keys have them (Qwen2.5: 900 times the deviation).
TEST_F(TableBuilderTest, ScaleBytesOfRowsLikeThoseMeasuredLieAroundTheMiddleWhateverTheMean) {
  for (float mean : {0.0f, 1.0f, 100.0f}) {
    Head head = PlainHead();
    for (uint32_t c = 0; c < kTableHeadDim; ++c) {
      head.deviation[c] = 0.02f + 0.01f * float(c % 5);
      if (c % (kTableHeadDim / 2) > kTableHeadDim / 4)
        head.mean[c] = mean * (c % 2 == 0 ? 1.0f : -2.0f);
    }
    const HeadTables tables = Measure(head, 4, 500);
    const HeadCodec codec(kTableFormat, tables, &rotation_);
    test::Random random(42);
    double key_sum = 0, value_sum = 0;
    for (uint32_t row = 0; row < 200; ++row) {
      std::vector<float> key(kTableHeadDim), value(kTableHeadDim), mu(kTableHeadDim);
      for (uint32_t c = 0; c < kTableHeadDim; ++c) {
        key[c] = head.mean[c] + head.deviation[c] * random.Normal();
        value[c] = random.Normal() * 0.125f;
      }
      const Position position(4 + row);
      const PositionTurn at(blocks_.pairs(), position);
      Turn(blocks_.pairs(), at.turn.data(), key.data(), key.data());
      std::vector<float> turn(kTableHeadDim);
      MeanTurn(blocks_.pairs(), blocks_.first_of(blocks_.BlockOf(position)), 8, turn.data());
      Turn(blocks_.pairs(), turn.data(), tables.mean.data(), mu.data());
      CodedRow coded;
      codec.EncodeKey(key.data(), mu.data(), coded);
      key_sum += coded.scale / 200.0;
      codec.EncodeValue(value.data(), coded);
      value_sum += coded.scale / 200.0;
    }
    // A row's log2 scale deviates by about 0.15, and with a mean that its block leaves a part of by
    // up to 0.6; a mean of 64 and one of 200 by 0.022 and 0.09: five of them.
    EXPECT_NEAR(key_sum, 128, (mean == 0 ? 0.11 : 0.45) * kKeyScaleSteps) << mean;
    EXPECT_NEAR(value_sum, 128, 0.11 * kValueScaleSteps) << mean;
  }
}

TEST_F(TableBuilderTest, ChannelsWithoutEnergyGiveFiniteTables) {
  Head dead = PlainHead();
  for (uint32_t c = 0; c < kTableHeadDim / 2; ++c)
    dead.deviation[c] = dead.deviation[c + kTableHeadDim / 2] =
        dead.reach[(c * 3) % kTableHeadDim] = c < 16 ? 0.0f : 1.0f;
  EXPECT_TRUE(Measure(dead, 4, 100).Validate(kTableHeadDim).ok());
  for (uint32_t c = 0; c < kTableHeadDim; ++c) dead.deviation[c] = dead.reach[c] = 0.0f;
  const HeadTables tables = Measure(dead, 4, 100);
  EXPECT_TRUE(tables.Validate(kTableHeadDim).ok());
  EXPECT_EQ(tables.weight, std::vector<float>(kTableHeadDim, 1.0f));
  EXPECT_EQ(tables.key_scale, 1.0f);
}

TEST_F(TableBuilderTest, NothingFedGivesNeutralTables) {
  const HeadTables tables = TableBuilder(kTableFormat, &blocks_, &rotation_).Build();
  EXPECT_TRUE(tables.Validate(kTableHeadDim).ok());
  EXPECT_EQ(tables.weight, std::vector<float>(kTableHeadDim, 1.0f));
  EXPECT_EQ(tables.mean, std::vector<float>(kTableHeadDim));
}

TEST_F(TableBuilderTest, LeavesOutTokensBeforeTheFirstBlockAndRowsThatAreNotFinite) {
  TableBuilder builder(kTableFormat, &blocks_, &rotation_);
  Feed(builder, PlainHead(), 0, 100);
  EXPECT_EQ(builder.tokens(), 96u);
  EXPECT_EQ(builder.queries(), 100u);
  std::vector<float> good(kTableHeadDim, 1.0f), bad(kTableHeadDim, 1.0f);
  const PositionTurn at(blocks_.pairs(), Position(100));
  for (float value :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    bad[7] = value;
    builder.AddToken(bad.data(), good.data(), at);
    builder.AddToken(good.data(), bad.data(), at);
    builder.AddQuery(bad.data());
  }
  EXPECT_EQ(builder.tokens(), 96u);
  EXPECT_EQ(builder.queries(), 100u);
  EXPECT_TRUE(builder.Build().Validate(kTableHeadDim).ok());
}

TEST_F(TableBuilderTest, TheSampleIsOfTheWholeFeedNotOfItsStart) {
  // The first 64 tokens are 16 times as large as the 2000 after them, which decide the mean scale.
  Head large = PlainHead();
  for (float& deviation : large.deviation) deviation = 16.0f;
  TableBuilder builder(kTableFormat, &blocks_, &rotation_);
  Feed(builder, large, 4, 64);
  Feed(builder, PlainHead(), 68, 2000);
  // 64 of 2064 are large: exp(log(16) * 2 / 64) = 1.09, and up to 8 of 64 still give 1.41.
  EXPECT_LT(builder.Build().key_scale, 2.0f);
}

}  // namespace
}  // namespace qevict
