#include "cache/head_windows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/cache/head_case.h"

namespace qevict {
namespace {

// Moves exactly the windows that a test names; the others stay.
class ScriptedPolicy final : public RoutingPolicy {
 public:
  void Route(std::span<const LedgerEntry> entries, TierCapacity,
             RoutingDecision& decision) const override {
    decision.moves.clear();
    for (uint32_t i = 0; i < entries.size(); ++i) {
      const auto wish = wishes.find(entries[i].window.value);
      if (wish != wishes.end() && wish->second != entries[i].tier)
        decision.moves.push_back({i, entries[i].tier, wish->second});
    }
  }
  std::map<uint32_t, Tier> wishes;
};

constexpr Geometry kGeometry{.omega = 4, .sinks = 2, .local = 4};
constexpr TierCapacity kRoom{.full = 8, .quantized = 40};

TEST(HeadWindowsTest, AWindowIsFullUntilItLeavesTheLocalZoneAndIsDemoted) {
  ScriptedPolicy policy;
  policy.wishes[0] = Tier::kQuantized;
  HeadCase head(kGeometry, kRoom, Promotion::kExpand, policy);
  head.Append(2 + 4);  // sinks and window 0, which is the local zone
  EXPECT_EQ(head.PlaceOf(0), 0u);
  head.Append(3);
  EXPECT_EQ(head.PlaceOf(0), 0u);
  EXPECT_EQ(head.Append(1).demotions, 1u);
  EXPECT_EQ(head.CodeOf(0), 0u);
  EXPECT_FALSE(head.PlaceOf(0).has_value());
}

TEST(HeadWindowsTest, OnlyTheFirstDemotionEncodes) {
  ScriptedPolicy policy;
  policy.wishes[0] = Tier::kQuantized;
  HeadCase head(kGeometry, kRoom, Promotion::kExpand, policy);
  EXPECT_EQ(head.Append(2 + 8).encoded, 1u);
  for (int round = 0; round < 5; ++round) {
    policy.wishes[0] = Tier::kFull;
    EXPECT_EQ(head.Append(4).promotions, 1u);
    EXPECT_EQ(head.head().retained().size(), 1u);
    policy.wishes[0] = Tier::kQuantized;
    const HeadWindows::Counts counts = head.Append(4);
    EXPECT_EQ(counts.demotions, 1u);
    EXPECT_EQ(counts.encoded, 0u);
  }
}

TEST(HeadWindowsTest, APromotedWindowHoldsWhatItsCodeDecodesTo) {
  ScriptedPolicy policy;
  policy.wishes[0] = Tier::kQuantized;
  HeadCase head(kGeometry, kRoom, Promotion::kExpand, policy);
  head.Append(2 + 8);
  policy.wishes[0] = Tier::kFull;
  head.Append(4);
  ASSERT_TRUE(head.PlaceOf(0).has_value());
  // The model has compared all bits; this one must differ from what was there first.
  EXPECT_NE(head.KeyAt(2 + *head.PlaceOf(0) * 4), head.OriginalKey(2));
}

TEST(HeadWindowsTest, APinnedWindowStaysACode) {
  ScriptedPolicy policy;
  policy.wishes[0] = Tier::kQuantized;
  HeadCase head(kGeometry, kRoom, Promotion::kPin, policy);
  head.Append(2 + 8);
  policy.wishes[0] = Tier::kFull;
  const HeadWindows::Counts counts = head.Append(4);
  EXPECT_EQ(counts.promotions, 0u);
  EXPECT_EQ(head.CodeOf(0), 0u);
  EXPECT_TRUE(head.head().retained().empty());
}

TEST(HeadWindowsTest, EvictionGivesThePageBackThatNoOtherCodeNeeds) {
  ScriptedPolicy policy;
  for (uint32_t w = 0; w < 17; ++w) policy.wishes[w] = Tier::kQuantized;  // 68 tokens
  HeadCase head(kGeometry, kRoom, Promotion::kExpand, policy);
  head.Append(2 + 18 * 4);
  EXPECT_EQ(head.head().page_count(), 2u);
  policy.wishes[5] = Tier::kEvicted;
  EXPECT_EQ(head.Append(4).evictions, 1u);
  EXPECT_EQ(head.head().page_count(), 1u);
  EXPECT_EQ(head.CodeOf(16), 5u);  // the last code moved into the hole
}

TEST(HeadWindowsTest, EvictionOfAFullWindowTakesItsCodeAlong) {
  ScriptedPolicy policy;
  policy.wishes[0] = Tier::kQuantized;
  HeadCase head(kGeometry, kRoom, Promotion::kExpand, policy);
  head.Append(2 + 8);
  policy.wishes[0] = Tier::kFull;
  head.Append(4);
  policy.wishes[0] = Tier::kEvicted;
  EXPECT_EQ(head.Append(4).evictions, 1u);
  EXPECT_EQ(head.head().page_count(), 0u);
}

TEST(HeadWindowsTest, TheLastFullWindowMovesIntoTheHoleAndTheOpenWindowFollows) {
  ScriptedPolicy policy;
  policy.wishes[1] = Tier::kQuantized;
  HeadCase head(kGeometry, kRoom, Promotion::kExpand, policy);
  head.Append(2 + 4 * 4 + 3);  // windows 0 .. 3, of which 3 is local, and three tokens
  EXPECT_EQ(head.PlaceOf(0), 0u);
  EXPECT_EQ(head.PlaceOf(3), 1u);
  EXPECT_EQ(head.PlaceOf(2), 2u);
  EXPECT_EQ(head.KeyAt(2 + 3 * 4), head.OriginalKey(2 + 4 * 4));
}

TEST(HeadWindowsTest, PromotionMakesRoomBeforeTheOpenWindow) {
  ScriptedPolicy policy;
  for (uint32_t w = 0; w < 5; ++w) policy.wishes[w] = Tier::kQuantized;
  HeadCase head(kGeometry, kRoom, Promotion::kExpand, policy);
  head.Append(2 + 6 * 4);
  for (uint32_t w = 0; w < 5; ++w) policy.wishes[w] = Tier::kFull;
  EXPECT_EQ(head.Append(4 + 3).promotions, 5u);
  EXPECT_EQ(head.KeyAt(2 + 7 * 4), head.OriginalKey(2 + 7 * 4));
}

TEST(HeadWindowsTest, ScoresFollowTheirWindowsAndTheOpenWindowKeepsWhatItReceived) {
  ScriptedPolicy policy;
  policy.wishes[1] = Tier::kQuantized;
  HeadCase head(kGeometry, kRoom, Promotion::kExpand, policy);
  for (uint32_t tokens : {1u, 3u, 4u, 9u, 1u, 1u, 1u, 1u, 2u, 13u}) {
    head.Append(tokens, MassInput::kRandom);
  }
}

TEST(HeadWindowsTest, AWindowOfAPromptCountsWhatItsNeighboursReceived) {
  const ScriptedPolicy policy;
  HeadCase head(kGeometry, kRoom, Promotion::kExpand, policy);
  head.Append(2 + 8 * 4 + 1, MassInput::kPooled);
  head.Append(4 * 4, MassInput::kPooled);
}

// Keeps every window, and the scores that it is shown.
class WatchingPolicy final : public RoutingPolicy {
 public:
  void Route(std::span<const LedgerEntry> entries, TierCapacity,
             RoutingDecision& decision) const override {
    decision.moves.clear();
    scores.clear();
    for (const LedgerEntry& entry : entries) scores.push_back(entry.score);
  }
  mutable std::vector<float> scores;
};

TEST(HeadWindowsTest, ValuesThatAreNotFiniteLeaveTheirWindowAScoreThatHasARank) {
  for (const float broken : {INFINITY, -INFINITY, NAN}) {
    const WatchingPolicy policy;
    HeadCase head(kGeometry, kRoom, Promotion::kExpand, policy);
    head.WeightByValues();
    head.Append(2 + 2 * 4);  // window 1 is the local zone
    head.SetValues(broken);
    head.Append(4);
    head.SetValues(0.5f);
    head.Append(3 * 4);  // nobody has paid attention yet
    EXPECT_EQ(policy.scores, std::vector<float>(5));
    head.Append(4, MassInput::kRandom);
    ASSERT_EQ(policy.scores.size(), 6u);
    for (const float score : policy.scores) EXPECT_TRUE(std::isfinite(score)) << score;
  }
}

TEST(HeadWindowsTest, TokensThatFitIntoTheSinksAreNoWindow) {
  ScriptedPolicy policy;
  HeadCase head({.omega = 2, .sinks = 6, .local = 2}, kRoom, Promotion::kExpand, policy);
  for (int i = 0; i < 6; ++i) {
    head.Append(1);
    EXPECT_TRUE(head.head().full().empty());
  }
  head.Append(2);
  EXPECT_EQ(head.head().full().size(), 1u);
}

TEST(HeadWindowsTest, AClearedHeadGivesItsPagesBackAndStartsAnew) {
  const test::ShufflingPolicy policy(1);
  HeadCase head(kGeometry, kRoom, Promotion::kExpand, policy);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 20; ++i) head.Append(7, MassInput::kRandom);
    head.Clear();
  }
}

struct StormCase {
  Geometry geometry;
  TierCapacity capacity;
  Promotion promotion;
};

class HeadWindowsStormTest : public ::testing::TestWithParam<StormCase> {};

TEST_P(HeadWindowsStormTest, EveryBitIsWhereTheModelSaysWhateverThePolicyDecides) {
  const auto& [geometry, capacity, promotion] = GetParam();
  const test::ShufflingPolicy policy(99);
  HeadCase head(geometry, capacity, promotion, policy);
  test::Random random(5);
  while (head.size() + 4 * geometry.omega < kCapacityTokens && head.size() < 250 * geometry.omega) {
    const uint64_t lot = random.Below(10);
    const uint32_t tokens = lot < 6    ? 1 + uint32_t(random.Below(geometry.omega))
                            : lot == 9 ? 3 * geometry.omega + 1
                                       : geometry.omega;
    head.Append(tokens, lot == 7 ? MassInput::kNone : MassInput::kRandom);
    if (testing::Test::HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Geometries, HeadWindowsStormTest,
    testing::Values(StormCase{{.omega = 1, .sinks = 4, .local = 5}, {9, 140}, Promotion::kExpand},
                    StormCase{{.omega = 3, .sinks = 0, .local = 7}, {6, 50}, Promotion::kExpand},
                    StormCase{{.omega = 8, .sinks = 4, .local = 1}, {5, 19}, Promotion::kExpand},
                    StormCase{{.omega = 64, .sinks = 1, .local = 64}, {3, 7}, Promotion::kExpand},
                    StormCase{{.omega = 8, .sinks = 5, .local = 20}, {0, 17}, Promotion::kExpand},
                    StormCase{{.omega = 8, .sinks = 5, .local = 20}, {6, 0}, Promotion::kExpand},
                    StormCase{{.omega = 3, .sinks = 2, .local = 7}, {6, 50}, Promotion::kPin},
                    StormCase{{.omega = 64, .sinks = 1, .local = 64}, {3, 7}, Promotion::kPin}),
    [](const testing::TestParamInfo<StormCase>& storm) {
      const StormCase& c = storm.param;
      return "Omega" + std::to_string(c.geometry.omega) + "Full" + std::to_string(c.capacity.full) +
             "Quantized" + std::to_string(c.capacity.quantized) +
             (c.promotion == Promotion::kPin ? "Pin" : "Expand");
    });

}  // namespace
}  // namespace qevict
