// SequenceKv and BatchAttention together, under a policy that moves windows at random.
#include <gtest/gtest.h>

#include "tests/cache/tiered_case.h"

namespace qevict::test {
namespace {

// Attention over f16 or int8 keys: scores and weights in f32, of values of about 4 at most; see
// batch_attention_test.cc.
constexpr double kF16Tolerance = 5e-5;
// Attention over codes rounds a query to bytes, a step of (2 to 3 deviations) / 127, which moves a
// score by about 0.6 % of its deviation of 1, and a weight to bytes of the largest in its page,
// about 5 times the mean: by 0.6 % of the mean. Neither depends on the other tokens, so that both
// shrink like the sum itself, and a row deviates by about 1 % of its length. A token that was lost
// or read twice among the 600 or fewer that these sequences hold moves a row by 4 %, a window by
// more.
constexpr double kCodeTolerance = 0.03;

// A window's mass has the error of its tokens' weights, at most about five deviations of 0.6 %.
constexpr double kMassTolerance = 0.04;

TieredConfig Small(uint32_t head_dim) {
  return {.shape = SmallShape(head_dim, false),
          .geometry = {.omega = 8, .sinks = 4, .local = 32},
          .capacity = {.full = 6, .quantized = 40},
          .capacity_tokens = 2400,
          .max_batch_tokens = 96};
}

// Batches as a conversation has them: a prompt in chunks, answers token by token, more prompts.
uint32_t NextBatch(TieredCase& sequence, uint32_t step, uint32_t max_batch_tokens) {
  if (step < 4) return max_batch_tokens - step;
  if (step % 400 > 2) return 1;
  return 1 + uint32_t(sequence.random().Below(max_batch_tokens));
}

struct RandomRun {
  const char* name;
  TieredConfig config;
  uint32_t steps = 0;
};

class TieredSequenceTest : public ::testing::TestWithParam<RandomRun> {};

TEST_P(TieredSequenceTest, IsSoundAfterEveryBatchAndAttendsWhatItHolds) {
  const auto& [name, config, steps] = GetParam();
  TieredCase sequence(config);
  for (uint32_t step = 0; step < steps; ++step) {
    const uint32_t tokens = NextBatch(sequence, step, config.max_batch_tokens);
    if (sequence.kv().size_tokens() + tokens > config.capacity_tokens) break;
    // A step shows an error of an earlier one as well.
    sequence.Step(tokens, step % 3 == 0 || step < 8 ? Compared::kWithOracle : Compared::kNot);
    sequence.ExpectSound();
    if (step % 10 == 0 || step < 8) sequence.ExpectStored();
    ASSERT_FALSE(HasFailure()) << "step " << step;
    ASSERT_LT(sequence.largest_f16_error(), kF16Tolerance) << "step " << step;
    ASSERT_LT(sequence.largest_code_error(), kCodeTolerance) << "step " << step;
    ASSERT_LT(sequence.largest_mass_error(), kMassTolerance) << "step " << step;
  }
  RecordProperty("largest_code_error", std::to_string(sequence.largest_code_error()));
  RecordProperty("largest_mass_error", std::to_string(sequence.largest_mass_error()));
  RecordProperty("largest_f16_error", std::to_string(sequence.largest_f16_error()));
  const TierStats stats = sequence.kv().stats();
  EXPECT_EQ(stats.promotions == 0, config.promotion == Promotion::kPin);
  EXPECT_EQ(stats.demotions == stats.encoded, config.promotion == Promotion::kPin);
  EXPECT_GT(stats.evictions, 0u);
}

std::vector<RandomRun> RandomRuns() {
  TieredConfig plain = Small(32);
  TieredConfig wide = Small(64);
  wide.means = KeyMeans::kRandom;
  TieredConfig swa = Small(32);
  swa.shape = SmallShape(32, true);
  swa.means = KeyMeans::kRandom;
  TieredConfig pinned = Small(32);
  pinned.promotion = Promotion::kPin;
  TieredConfig odd = Small(32);
  odd.geometry = {.omega = 3, .sinks = 0, .local = 7};
  odd.capacity = {.full = 9, .quantized = 90};
  TieredConfig single = Small(32);
  single.geometry = {.omega = 1, .sinks = 1, .local = 1};
  single.capacity = {.full = 30, .quantized = 250};
  TieredConfig large = Small(32);
  large.geometry = {.omega = 64, .sinks = 4, .local = 64};
  large.capacity = {.full = 2, .quantized = 5};
  using Side = CodeRaise::Side;
  TieredConfig mixed = Small(64);  // each of four heads with a format of its own
  mixed.means = KeyMeans::kRandom;
  mixed.raises = {{2, Side::kKey}, {0, Side::kValue}, {3, Side::kKey}, {3, Side::kValue}};
  TieredConfig mixed_odd = odd;
  mixed_odd.raises = {{1, Side::kValue}, {2, Side::kKey}};
  TieredConfig mixed_swa = swa;
  mixed_swa.raises = {{1, Side::kValue}};
  TieredConfig mixed_pinned = pinned;
  mixed_pinned.raises = {{0, Side::kKey}, {1, Side::kKey}, {2, Side::kKey}, {3, Side::kKey}};
  TieredConfig scored = Small(32);
  scored.scoring = {.when = ScoreWhen::kEvent,
                    .prior_tokens = kAllTokens,
                    .group = GroupMass::kMax,
                    .per_voter = true,
                    .value_weighted = true};
  TieredConfig bytes = Small(80);
  bytes.kv_type = KvType::kQ8;
  TieredConfig bytes_swa = swa, bytes_odd = odd, bytes_scored = scored, bytes_mixed = mixed;
  for (TieredConfig* config : {&bytes_swa, &bytes_odd, &bytes_scored, &bytes_mixed}) {
    config->kv_type = KvType::kQ8;
  }
  return {{"Plain", plain, 2000},
          {"WideWithMeans", wide, 500},
          {"SlidingLayer", swa, 500},
          {"Pinned", pinned, 500},
          {"OddWindows", odd, 500},
          {"OneTokenWindows", single, 500},
          {"LargeWindows", large, 700},
          {"Scored", scored, 500},
          {"MixedBits", mixed, 500},
          {"MixedBitsOddWindows", mixed_odd, 500},
          {"MixedBitsSlidingLayer", mixed_swa, 500},
          {"MixedBitsPinned", mixed_pinned, 500},
          {"Q8", bytes, 500},
          {"Q8SlidingLayer", bytes_swa, 500},
          {"Q8OddWindows", bytes_odd, 500},
          {"Q8Scored", bytes_scored, 300},
          {"Q8MixedBits", bytes_mixed, 300}};
}
INSTANTIATE_TEST_SUITE_P(Runs, TieredSequenceTest, testing::ValuesIn(RandomRuns()),
                         [](const testing::TestParamInfo<RandomRun>& run) {
                           return std::string(run.param.name);
                         });

TEST(TieredSequencePropertyTest, TheOutputDoesNotDependOnTheNumberOfThreads) {
  for (bool swa : {false, true}) {
    const auto run = [swa](uint32_t threads) {
      TieredConfig config = Small(32);
      config.shape = SmallShape(32, swa);
      config.threads = threads;
      TieredCase sequence(config);
      std::vector<float> all;
      for (uint32_t step = 0; step < 120; ++step) {
        const std::vector<float> out = sequence.Step(step < 6         ? 96 - step
                                                     : step % 40 == 0 ? 17
                                                                      : 1);
        all.insert(all.end(), out.begin(), out.end());
      }
      return all;
    };
    const std::vector<float> one = run(1);
    EXPECT_TRUE(one == run(2));
    EXPECT_TRUE(one == run(3));
  }
}

TEST(TieredSequencePropertyTest, WithoutALimitTheOutputIsThatOfAFullCacheBitForBit) {
  for (const auto& [swa, type] : {std::pair(false, KvType::kF16), std::pair(true, KvType::kF16),
                                  std::pair(true, KvType::kQ8)}) {
    const auto run = [swa = swa, type = type](TierSplit split) {
      TieredConfig config = Small(32);
      config.shape = SmallShape(32, swa);
      config.kv_type = type;
      config.split = split;
      config.room = Room::kUnlimited;
      config.tiers = split != TierSplit::kFullOnly;
      TieredCase sequence(config);
      std::vector<float> all;
      for (uint32_t step = 0; step < 200; ++step) {
        const std::vector<float> out = sequence.Step(step < 8         ? 96 - step
                                                     : step % 60 == 0 ? 50
                                                                      : 1);
        all.insert(all.end(), out.begin(), out.end());
        sequence.ExpectSound();
      }
      return all;
    };
    const std::vector<float> full = run(TierSplit::kFullOnly);
    EXPECT_TRUE(full == run(TierSplit::kFullAndCodes));
    EXPECT_TRUE(full == run(TierSplit::kCodeHistory));
  }
}

// A prompt of several chunks, once layer by layer and once as the one batch of a larger cache.
TEST(TieredSequencePropertyTest, APromptLayerByLayerLeavesWhatOneBatchOfItLeaves) {
  for (const auto& [swa, type] : {std::pair(false, KvType::kF16), std::pair(true, KvType::kF16),
                                  std::pair(false, KvType::kQ8)}) {
    TieredConfig config = Small(32);
    config.shape = SmallShape(32, swa);
    config.kv_type = type;
    TieredCase by_layer(config);
    config.max_batch_tokens = 500;
    TieredCase at_once(config);
    by_layer.PromptByLayers(500, Compared::kWithOracle);
    at_once.Step(500);
    by_layer.ExpectInvariants();
    by_layer.ExpectStored();
    EXPECT_LT(by_layer.largest_f16_error(), kF16Tolerance);
    EXPECT_LT(by_layer.largest_mass_error(), 1e-4);
    const CacheSnapshot one = Snapshot(by_layer.kv()), other = Snapshot(at_once.kv());
    EXPECT_TRUE(one.heads == other.heads);
    // Rings are as long as batches.
    EXPECT_TRUE(swa || by_layer.Contents() == at_once.Contents());
    for (uint32_t step = 0; step < 20; ++step) {
      const std::vector<float> out = by_layer.Step(1, Compared::kWithOracle);
      EXPECT_TRUE(out == at_once.Step(1)) << "step " << step;
      by_layer.ExpectInvariants();
    }
    EXPECT_LT(by_layer.largest_code_error(), kCodeTolerance);
  }
}

TEST(TieredSequencePropertyTest, APromptLayerByLayerSeesWhatAFullCacheHolds) {
  for (const KvType type : {KvType::kF16, KvType::kQ8}) {
    TieredConfig config = Small(32);
    config.kv_type = type;
    TieredCase tiered(config);
    config.room = Room::kUnlimited;
    config.split = TierSplit::kFullOnly;
    config.tiers = false;
    TieredCase full(config);
    const std::vector<float> by_layer = tiered.PromptByLayers(3 * 96);
    std::vector<float> chunks;
    for (int chunk = 0; chunk < 3; ++chunk) {
      const std::vector<float> out = full.Step(96);
      chunks.insert(chunks.end(), out.begin(), out.end());
    }
    // [layers][chunks] against [chunks][layers].
    const size_t floats = chunks.size() / 6;
    for (size_t layer = 0; layer < 2; ++layer) {
      for (size_t chunk = 0; chunk < 3; ++chunk) {
        EXPECT_TRUE(std::equal(by_layer.begin() + ptrdiff_t((layer * 3 + chunk) * floats),
                               by_layer.begin() + ptrdiff_t((layer * 3 + chunk + 1) * floats),
                               chunks.begin() + ptrdiff_t((chunk * 2 + layer) * floats)));
      }
    }
  }
}

TEST(TieredSequencePropertyTest, AnAbandonedPromptLeavesAnEmptySequence) {
  TieredCase sequence(Small(32));
  ASSERT_TRUE(sequence.kv().BeginPrompt(400).ok());
  sequence.kv().BeginLayer(LayerId(0));
  sequence.kv().CommitLayer(LayerId(0));
  sequence.kv().AbandonPrompt();
  sequence.ExpectSound();
  EXPECT_EQ(sequence.kv().size_tokens(), 0u);
  EXPECT_EQ(sequence.kv().code_bytes(), 0u);
  EXPECT_EQ(sequence.kv().staging_bytes(), 0u);
  sequence.PromptByLayers(400, Compared::kWithOracle);
  sequence.ExpectSound();
  EXPECT_LT(sequence.largest_f16_error(), kF16Tolerance);
}

// Keeps the newest windows full, until it is told to exchange them for the oldest ones.
class ExchangePolicy final : public RoutingPolicy {
 public:
  void Route(std::span<const LedgerEntry> entries, TierCapacity capacity,
             RoutingDecision& decision) const override {
    decision.order.clear();
    for (uint32_t i = 0; i < entries.size(); ++i) decision.order.push_back(i);
    std::ranges::sort(decision.order, [&](uint32_t a, uint32_t b) {
      return oldest_full ? entries[a].window < entries[b].window
                         : entries[a].window > entries[b].window;
    });
    decision.moves.clear();
    for (uint32_t place = 0; place < entries.size(); ++place) {
      const uint32_t i = decision.order[place];
      const Tier to = place < capacity.full                        ? Tier::kFull
                      : place < capacity.full + capacity.quantized ? Tier::kQuantized
                                                                   : Tier::kEvicted;
      if (to != entries[i].tier) decision.moves.push_back({i, entries[i].tier, to});
    }
    std::ranges::sort(decision.moves, {}, &TierMove::entry);
  }
  bool oldest_full = false;
};

// Every promoted window keeps its code while every full one gets its first: the codes of a head
// grow by more than the one window that has left the local zone.
TEST(TieredSequencePropertyTest, AllFullWindowsMayLeaveTheirTierAtOneEvent) {
  ExchangePolicy policy;
  TieredConfig config = Small(32);
  config.geometry = {.omega = 64, .sinks = 0, .local = 64};
  config.capacity = {.full = 20, .quantized = 20};
  config.capacity_tokens = 64 * 40;
  config.max_batch_tokens = 64;
  config.policy = &policy;
  TieredCase sequence(config);
  for (int window = 0; window < 37; ++window) sequence.Step(64);
  policy.oldest_full = true;
  for (int token = 0; token < 64; ++token) sequence.Step(1);
  sequence.ExpectSound();
  sequence.ExpectStored();
  EXPECT_GE(sequence.kv().stats().promotions, 4 * 16u);
}

TEST(TieredSequencePropertyTest, HugeKeysGiveFiniteOutput) {
  for (uint32_t omega : {1u, 8u}) {
    TieredConfig config = Small(32);
    config.geometry.omega = omega;
    config.content = RowContent::kHugeKeys;
    TieredCase sequence(config);
    for (uint32_t step = 0; step < 100; ++step) {
      const std::vector<float> out = sequence.Step(step < 8 ? 96 : 1);
      // A convex combination of values of at most 3.5, and of what codes make of them.
      for (float x : out) ASSERT_LT(std::abs(x), 20.0f) << "step " << step;
      sequence.ExpectSound();
    }
  }
}

TEST(TieredSequencePropertyTest, IdenticalKeysShareTheAttention) {
  for (uint32_t omega : {1u, 8u}) {
    TieredConfig config = Small(64);
    config.geometry.omega = omega;
    config.content = RowContent::kIdenticalKeys;
    TieredCase sequence(config);
    for (uint32_t step = 0; step < 60; ++step) {
      sequence.Step(step < 8 ? 96 : 1, Compared::kWithOracle);
      sequence.ExpectSound();
    }
    // These keys make scores that deviate by 2 instead of 1.
    EXPECT_LT(sequence.largest_f16_error(), 2.0 * kF16Tolerance);
    EXPECT_LT(sequence.largest_code_error(), 2.0 * kCodeTolerance);
  }
}

TEST(TieredSequencePropertyTest, AForgottenSequenceStartsAnewWithinTheSameBytes) {
  TieredCase sequence(Small(32));
  uint64_t used = 0;
  for (int round = 0; round < 3; ++round) {
    for (uint32_t step = 0; step < 12; ++step) {
      sequence.Step(step < 9 ? 96 : 1, Compared::kWithOracle);
      sequence.ExpectSound();
    }
    EXPECT_LT(sequence.largest_code_error(), kCodeTolerance);
    if (round == 0) used = sequence.kv().budget().used_bytes();
    ASSERT_TRUE(sequence.kv().Truncate(0).ok());
    sequence.ExpectSound();
    EXPECT_EQ(sequence.kv().code_bytes(), 0u);
  }
  EXPECT_LE(sequence.kv().budget().used_bytes(), used + CodePoolBytes({32, 3, 2}, kSlabPages));
}

}  // namespace
}  // namespace qevict::test
