#include "policy/routing_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/random.h"

namespace qevict {
namespace {

std::vector<TierMove> Route(std::span<const LedgerEntry> entries, TierCapacity capacity) {
  RoutingDecision decision;
  ScorePolicy().Route(entries, capacity, decision);
  return decision.moves;
}

TEST(ScorePolicyTest, ChallengerThatWinsDemotesTheWeakestFullWindow) {
  const LedgerEntry entries[] = {{WindowId(0), Tier::kFull, 9.0f},
                                 {WindowId(1), Tier::kFull, 2.0f},
                                 {WindowId(2), Tier::kQuantized, 1.0f},
                                 {WindowId(7), Tier::kFull, 5.0f}};  // challenger
  const std::vector<TierMove> expected = {{1, Tier::kFull, Tier::kQuantized},
                                          {2, Tier::kQuantized, Tier::kEvicted}};
  EXPECT_EQ(Route(entries, {.full = 2, .quantized = 1}), expected);
}

TEST(ScorePolicyTest, AQuantizedWindowThatGatheredAttentionIsPromoted) {
  const LedgerEntry entries[] = {{WindowId(0), Tier::kQuantized, 3.0f},
                                 {WindowId(1), Tier::kFull, 2.0f}};
  const std::vector<TierMove> expected = {{0, Tier::kQuantized, Tier::kFull},
                                          {1, Tier::kFull, Tier::kQuantized}};
  EXPECT_EQ(Route(entries, {.full = 1, .quantized = 1}), expected);
}

TEST(ScorePolicyTest, OfEqualScoresTheNewerWindowWins) {
  const LedgerEntry entries[] = {{WindowId(4), Tier::kQuantized, 0.0f},
                                 {WindowId(9), Tier::kFull, 0.0f},
                                 {WindowId(6), Tier::kQuantized, 0.0f}};
  const std::vector<TierMove> expected = {{0, Tier::kQuantized, Tier::kEvicted},
                                          {1, Tier::kFull, Tier::kQuantized}};
  EXPECT_EQ(Route(entries, {.full = 0, .quantized = 2}), expected);
}

TEST(ScorePolicyTest, RoomForAllMovesNothing) {
  const LedgerEntry entries[] = {{WindowId(0), Tier::kFull, 0.5f},
                                 {WindowId(1), Tier::kFull, 0.1f}};
  EXPECT_TRUE(Route(entries, {.full = 2, .quantized = 0}).empty());
  EXPECT_TRUE(Route({}, {.full = 2, .quantized = 0}).empty());
}

// Against a full sort, whatever the order of the entries.
TEST(ScorePolicyTest, TheResultIsThatOfASortAndDoesNotDependOnTheOrderOfEntries) {
  test::Random random(17);
  for (int round = 0; round < 500; ++round) {
    std::vector<LedgerEntry> entries(random.Below(40));
    for (uint32_t i = 0; i < entries.size(); ++i) {
      entries[i] = {WindowId(i), Tier(random.Below(2)), float(random.Below(6))};
    }
    const TierCapacity capacity{uint32_t(random.Below(12)), uint32_t(random.Below(30))};
    std::vector<LedgerEntry> sorted = entries;
    std::ranges::sort(sorted, [](const LedgerEntry& a, const LedgerEntry& b) {
      return a.score != b.score ? a.score > b.score : a.window > b.window;
    });
    std::vector<Tier> expected(entries.size());
    for (size_t rank = 0; rank < sorted.size(); ++rank) {
      expected[sorted[rank].window.value] = rank < capacity.full ? Tier::kFull
                                            : rank < capacity.full + capacity.quantized
                                                ? Tier::kQuantized
                                                : Tier::kEvicted;
    }
    for (int turn = 0; turn < 2; ++turn) {
      std::vector<Tier> actual(entries.size());
      for (const LedgerEntry& entry : entries) actual[entry.window.value] = entry.tier;
      for (const TierMove& move : Route(entries, capacity)) {
        const LedgerEntry& entry = entries[move.entry];
        EXPECT_EQ(move.from, entry.tier);
        EXPECT_NE(move.from, move.to);
        actual[entry.window.value] = move.to;
      }
      EXPECT_EQ(actual, expected) << "round " << round;
      std::ranges::reverse(entries);
    }
  }
}

}  // namespace
}  // namespace qevict
