// What an observer of routing is told, against the ledger.
#include "cache/routing_observer.h"

#include <gtest/gtest.h>

#include "tests/cache/tiered_case.h"

namespace qevict::test {
namespace {

TieredConfig Small(RoutingObserver* observer) {
  return {.shape = SmallShape(32, false),
          .geometry = {.omega = 8, .sinks = 4, .local = 32},
          .capacity = {.full = 6, .quantized = 40},
          .capacity_tokens = 2400,
          .max_batch_tokens = 96,
          .observer = observer};
}

// Plays the moves again: every window enters the history in the full tier.
class Replay final : public RoutingObserver {
 public:
  using Head = std::pair<uint32_t, uint32_t>;  // layer, KV head
  struct Move {
    Head head;
    WindowMove move;
  };

  uint32_t OnSequence(const SequenceKv& /*kv*/) noexcept override { return ++sequences_; }
  void OnMoves(LayerId layer, KvHeadId kv_head,
               std::span<const WindowMove> moves) noexcept override {
    const Head head{layer.value, kv_head.value};
    EXPECT_FALSE(moves.empty());
    EXPECT_TRUE(pending_.empty() || pending_.back().head < head);
    for (const WindowMove& move : moves) pending_.push_back({head, move});
  }
  void OnReview(const SequenceReview& review) noexcept override {
    EXPECT_EQ(review.sequence, 1u);
    for (const auto& [head, move] : pending_) {
      EXPECT_LT(move.window.value, review.history_windows);
      Tier& tier = tiers_[head][move.window.value];
      EXPECT_EQ(tier, move.from);
      EXPECT_NE(tier, move.to);
      tier = move.to;
      (move.to == Tier::kEvicted ? evictions
       : move.to == Tier::kFull  ? promotions
                                 : demotions) += 1;
    }
    pending_.clear();
    encoded += review.encoded;
    seconds += review.seconds;
    last = review;
    ++events;
  }
  void OnAbandon() noexcept override { pending_.clear(); }
  void OnClear(uint32_t sequence) noexcept override {
    EXPECT_EQ(sequence, 1u);
    tiers_.clear();
  }

  Tier tier(Head head, uint32_t window) const {
    const auto of_head = tiers_.find(head);
    if (of_head == tiers_.end()) return Tier::kFull;
    const auto moved = of_head->second.find(window);
    return moved == of_head->second.end() ? Tier::kFull : moved->second;
  }
  // That the replayed tiers are the ledger's.
  void ExpectTiersOf(const SequenceKv& kv) const {
    const CacheSnapshot snapshot = Snapshot(kv);
    for (const HeadSnapshot& head : snapshot.heads) {
      std::vector<Tier> expected(snapshot.history_windows, Tier::kEvicted);
      for (const WindowSnapshot& record : head.full) {
        if (record.window < snapshot.history_windows) expected[record.window] = Tier::kFull;
      }
      for (const WindowSnapshot& record : head.attended) expected[record.window] = Tier::kQuantized;
      for (uint32_t window = 0; window < snapshot.history_windows; ++window) {
        ASSERT_EQ(tier({head.layer, head.kv_head}, window), expected[window])
            << "layer " << head.layer << ", KV head " << head.kv_head << ", window " << window;
      }
    }
  }
  void ExpectTotalsOf(const SequenceKv& kv) const {
    const TierStats stats = kv.stats();
    EXPECT_EQ(events, stats.events);
    EXPECT_EQ(demotions, stats.demotions);
    EXPECT_EQ(promotions, stats.promotions);
    EXPECT_EQ(evictions, stats.evictions);
    EXPECT_EQ(encoded, stats.encoded);
    EXPECT_LE(seconds, stats.routing_seconds * (1 + 1e-9));
  }

  uint64_t events = 0, demotions = 0, promotions = 0, evictions = 0, encoded = 0;
  double seconds = 0.0;
  SequenceReview last;

 private:
  uint32_t sequences_ = 0;
  std::vector<Move> pending_;
  std::map<Head, std::map<uint32_t, Tier>> tiers_;  // of windows that ever moved
};

class RoutingObserverTest : public ::testing::TestWithParam<Promotion> {};

// Prompts in chunks, answers and more prompts, under a policy that moves windows at random.
TEST_P(RoutingObserverTest, MovesPlayedAgainGiveTheTiersOfEveryWindow) {
  for (const bool swa : {false, true}) {
    Replay replay;
    TieredConfig config = Small(&replay);
    config.shape = SmallShape(32, swa);
    config.promotion = GetParam();
    TieredCase sequence(config);
    for (uint32_t step = 0; step < 300; ++step) {
      const uint32_t tokens = step < 5 ? 96 - step : step % 60 == 0 ? 50 : 1;
      const uint64_t events = sequence.kv().stats().events;
      sequence.Step(tokens);
      replay.ExpectTiersOf(sequence.kv());
      replay.ExpectTotalsOf(sequence.kv());
      ASSERT_FALSE(HasFailure()) << "step " << step;
      if (sequence.kv().stats().events == events) continue;
      const TierStats stats = sequence.kv().stats();
      EXPECT_EQ(replay.last.position_tokens, sequence.kv().size_tokens());
      EXPECT_EQ(replay.last.batch_tokens, tokens);
      EXPECT_EQ(replay.last.windows.full, stats.full_windows);
      EXPECT_EQ(replay.last.windows.quantized, stats.quantized_windows);
      EXPECT_EQ(replay.last.windows.evicted, stats.evicted_windows);
      EXPECT_EQ(replay.last.used_bytes, sequence.kv().budget().used_bytes());
      EXPECT_EQ(replay.last.limit_bytes, sequence.kv().budget().limit_bytes());
    }
    EXPECT_GT(replay.evictions, 0u);
    EXPECT_EQ(replay.promotions > 0, GetParam() == Promotion::kExpand);
  }
}
INSTANTIATE_TEST_SUITE_P(Promotions, RoutingObserverTest,
                         testing::Values(Promotion::kExpand, Promotion::kPin),
                         [](const auto& test) {
                           return test.param == Promotion::kExpand ? "Expand" : "Pin";
                         });

TEST(RoutingObserverPromptTest, APromptLayerByLayerIsOneEvent) {
  Replay replay;
  TieredCase sequence(Small(&replay));
  sequence.PromptByLayers(500);
  EXPECT_EQ(replay.events, 1u);
  EXPECT_EQ(replay.last.batch_tokens, 500u);
  EXPECT_EQ(replay.last.position_tokens, 500u);
  replay.ExpectTiersOf(sequence.kv());
  replay.ExpectTotalsOf(sequence.kv());
}

TEST(RoutingObserverPromptTest, WhatAnAbandonedPromptMovedNeverHappened) {
  Replay replay;
  TieredCase sequence(Small(&replay));
  ASSERT_TRUE(sequence.kv().BeginPrompt(400).ok());
  sequence.kv().BeginLayer(LayerId(0));
  sequence.kv().CommitLayer(LayerId(0));
  EXPECT_GT(sequence.kv().stats().demotions, 0u);
  sequence.kv().AbandonPrompt();
  EXPECT_EQ(replay.events, 0u);
  replay.ExpectTotalsOf(sequence.kv());
  sequence.PromptByLayers(500);
  replay.ExpectTiersOf(sequence.kv());
  replay.ExpectTotalsOf(sequence.kv());
}

TEST(RoutingObserverPromptTest, AClearedSequenceStartsAnew) {
  Replay replay;
  TieredCase sequence(Small(&replay));
  for (int round = 0; round < 2; ++round) {
    for (uint32_t step = 0; step < 60; ++step) sequence.Step(step < 5 ? 96 : 1);
    replay.ExpectTiersOf(sequence.kv());
    replay.ExpectTotalsOf(sequence.kv());
    ASSERT_TRUE(sequence.kv().Truncate(0).ok());
    replay.ExpectTiersOf(sequence.kv());
  }
}

}  // namespace
}  // namespace qevict::test
