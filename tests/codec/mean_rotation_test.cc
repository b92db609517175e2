#include "codec/mean_rotation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "tests/support/random.h"
#include "tests/support/rows.h"

namespace qevict {
namespace {

RopePairs Pairs(uint32_t head_dim, uint32_t dims, RopePairs::Layout layout) {
  RopePairs pairs{.head_dim = head_dim, .layout = layout, .angles = {}};
  for (uint32_t i = 0; i < dims / 2; ++i)
    pairs.angles.push_back(std::pow(10000.0, -2.0 * i / dims));
  return pairs;
}

class TurnTest : public testing::TestWithParam<RopePairs::Layout> {};

TEST_P(TurnTest, IsTheMeanOfTheSinglePositionsFarOutToo) {
  const RopePairs pairs = Pairs(64, 64, GetParam());
  for (uint32_t first : {0u, 4u, 1000u, 1000000u}) {
    for (uint32_t tokens : {1u, 7u, 8u, 32u, 64u}) {
      std::vector<float> turn(64);
      MeanTurn(pairs, Position(first), tokens, turn.data());
      for (size_t i = 0; i < pairs.pairs(); ++i) {
        long double cosine = 0, sine = 0;
        for (uint32_t p = first; p < first + tokens; ++p) {
          const long double angle = (long double)(pairs.angles[i]) * p;
          cosine += std::cos(angle) / tokens;
          sine += std::sin(angle) / tokens;
        }
        // Half a rounding unit of an f32 below 1, and 1e-9 of the closed form.
        ASSERT_NEAR(turn[pairs.first(i)], double(cosine), 0x1p-25 + 1e-9) << first << " " << i;
        ASSERT_NEAR(turn[pairs.second(i)], double(sine), 0x1p-25 + 1e-9) << first << " " << i;
      }
    }
  }
}

TEST_P(TurnTest, OfAMeanIsTheMeanOfTheTurnedKeys) {
  const RopePairs pairs = Pairs(96, 64, GetParam());
  test::Random random(3);
  const std::vector<float> mean = test::GaussianRow(96, random);
  std::vector<float> turn(96), mu(96);
  MeanTurn(pairs, Position(1004), 8, turn.data());
  Turn(pairs, turn.data(), mean.data(), mu.data());
  std::vector<double> expected(96);
  for (uint32_t p = 1004; p < 1012; ++p) {
    for (size_t i = 0; i < pairs.pairs(); ++i) {
      const double cosine = std::cos(pairs.angles[i] * p), sine = std::sin(pairs.angles[i] * p);
      const double a = mean[pairs.first(i)], b = mean[pairs.second(i)];
      expected[pairs.first(i)] += (a * cosine - b * sine) / 8;
      expected[pairs.second(i)] += (a * sine + b * cosine) / 8;
    }
  }
  // |mean| < 4: two products and a sum, three rounding units of 4 each.
  for (size_t c = 0; c < 64; ++c) ASSERT_NEAR(mu[c], expected[c], 6 * 4 * 0x1p-24) << c;
  for (size_t c = 64; c < 96; ++c) ASSERT_EQ(mu[c], mean[c]) << c;
}

TEST_P(TurnTest, TheResultMayReplaceEitherFactor) {
  const RopePairs pairs = Pairs(80, 64, GetParam());
  test::Random random(6);
  const std::vector<float> row = test::GaussianRow(80, random);
  std::vector<float> turn(80), expected(80);
  MeanTurn(pairs, Position(77), 8, turn.data());
  for (const auto& turned : {Turn, TurnBack}) {
    turned(pairs, turn.data(), row.data(), expected.data());
    std::vector<float> x = row, by = turn;
    turned(pairs, turn.data(), x.data(), x.data());
    turned(pairs, by.data(), row.data(), by.data());
    EXPECT_EQ(x, expected);
    EXPECT_EQ(by, expected);
  }
}

TEST_P(TurnTest, BackUndoesTheTurnOfASinglePosition) {
  const RopePairs pairs = Pairs(64, 32, GetParam());
  test::Random random(4);
  const std::vector<float> row = test::GaussianRow(64, random);
  std::vector<float> turn(64), turned(64);
  MeanTurn(pairs, Position(777), 1, turn.data());
  Turn(pairs, turn.data(), row.data(), turned.data());
  TurnBack(pairs, turn.data(), turned.data(), turned.data());
  for (size_t c = 0; c < 64; ++c) ASSERT_NEAR(turned[c], row[c], 12 * 4 * 0x1p-24) << c;
}

TEST_P(TurnTest, TheQuerysVectorGivesTheScoreOfTheMean) {
  const RopePairs pairs = Pairs(80, 64, GetParam());
  test::Random random(5);
  const std::vector<float> mean = test::GaussianRow(80, random), q = test::GaussianRow(80, random);
  std::vector<float> z(80), turn(80), mu(80);
  TurnBack(pairs, mean.data(), q.data(), z.data());
  for (uint32_t first : {4u, 12u, 100004u}) {
    MeanTurn(pairs, Position(first), 8, turn.data());
    Turn(pairs, turn.data(), mean.data(), mu.data());
    double score = 0, expected = 0;
    for (size_t c = 0; c < 80; ++c) {
      score += double(z[c]) * turn[c];
      expected += double(q[c]) * mu[c];
    }
    // 80 terms below 2 * 16, four rounding units each.
    EXPECT_NEAR(score, expected, 80 * 4 * 32 * 0x1p-24);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, TurnTest,
                         testing::Values(RopePairs::Layout::kInterleaved,
                                         RopePairs::Layout::kHalves));

TEST(MeanTurnTest, AnAngleOfAWholeTurnShrinksNothing) {
  RopePairs pairs{
      .head_dim = 16, .layout = RopePairs::Layout::kHalves, .angles = {0.0, 2 * std::numbers::pi}};
  float turn[16];
  MeanTurn(pairs, Position(8), 8, turn);
  EXPECT_NEAR(turn[pairs.first(0)], 1.0f, 1e-6);
  EXPECT_NEAR(turn[pairs.first(1)], 1.0f, 1e-6);
  EXPECT_NEAR(turn[pairs.second(1)], 0.0f, 1e-6);
}

MeanRotation Blocks() {
  return MeanRotation(Pairs(64, 64, RopePairs::Layout::kHalves), Position(4), 8);
}

TEST(MeanRotationTest, RowsAreTheTurnsOfTheirBlocks) {
  MeanRotation blocks = Blocks();
  ASSERT_TRUE(blocks.Grow(300).ok());
  ASSERT_GE(blocks.blocks(), 300u);
  for (size_t block : {0u, 1u, 255u, 256u, 299u}) {
    std::vector<float> turn(64);
    MeanTurn(blocks.pairs(), Position(uint32_t(4 + 8 * block)), 8, turn.data());
    EXPECT_EQ(std::vector<float>(blocks.row(block), blocks.row(block) + 64), turn) << block;
  }
}

TEST(MeanRotationTest, GrowingMovesNoRowAndCountsWhatItTakes) {
  MeanRotation blocks = Blocks();
  EXPECT_EQ(blocks.bytes(), 0u);
  ASSERT_TRUE(blocks.Grow(1).ok());
  EXPECT_EQ(blocks.bytes(), 256u * 64 * 4);
  const float* first = blocks.row(0);
  ASSERT_TRUE(blocks.Grow(1000).ok());
  EXPECT_EQ(blocks.row(0), first);
  EXPECT_EQ(blocks.bytes(), 1024u * 64 * 4);
  ASSERT_TRUE(blocks.Grow(10).ok());
  EXPECT_EQ(blocks.blocks(), 1024u);
}

TEST(MeanRotationTest, BlocksStartAfterTheTokensThatAreNeverCoded) {
  const MeanRotation blocks = Blocks();
  EXPECT_EQ(blocks.BlockOf(Position(4)), 0u);
  EXPECT_EQ(blocks.BlockOf(Position(11)), 0u);
  EXPECT_EQ(blocks.BlockOf(Position(12)), 1u);
  EXPECT_EQ(blocks.first_of(1), Position(12));
}

TEST(MeanRotationTest, MoreRowsThanTheMachineHasMemoryForAreRefusedAndChangeNothing) {
  MeanRotation blocks = Blocks();
  ASSERT_TRUE(blocks.Grow(1).ok());
  const Status status = blocks.Grow(size_t{1} << 60);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(blocks.blocks(), MeanRotation::kChunkRows);
}

}  // namespace
}  // namespace qevict
