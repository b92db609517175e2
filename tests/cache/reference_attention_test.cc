// ReferenceAttention as the attention of whole batches. That the fused one agrees with
// ReferenceHead is tested with it, in tiered_sequence_test.cc.
#include "cache/reference_attention.h"

#include <gtest/gtest.h>

#include "tests/cache/tiered_case.h"

namespace qevict::test {
namespace {

TieredConfig Reference(bool swa) {
  return {.shape = SmallShape(32, swa),
          .geometry = {.omega = 8, .sinks = 4, .local = 32},
          .capacity = {.full = 6, .quantized = 40},
          .means = KeyMeans::kRandom,
          .capacity_tokens = 2400,
          .max_batch_tokens = 96,
          .reference = true};
}

uint32_t BatchOf(uint32_t step) { return step < 6 ? 96 - step : step % 20 == 0 ? 17 : 1; }

// Each mass rounds to f32 and to units of 2^-42, their sum to f32; compared with the sum + 1e-6.
double MassTolerance(uint32_t voters) { return 0x1p-23 + voters * 0x1p-43 / 1e-6; }

// Rows and masses in their places: prompts, decoded tokens, rings, every tier.
TEST(ReferenceAttentionTest, GivesEveryRowWhatItsHeadHolds) {
  for (const bool swa : {false, true}) {
    TieredCase sequence(Reference(swa));
    for (uint32_t step = 0; step < 80; ++step) {
      sequence.Step(BatchOf(step), Compared::kWithOracle);
      sequence.ExpectSound();
      sequence.ExpectStored();
      ASSERT_FALSE(HasFailure()) << "step " << step;
    }
    EXPECT_EQ(sequence.largest_f16_error(), 0.0);
    EXPECT_EQ(sequence.largest_code_error(), 0.0);
    EXPECT_LT(sequence.largest_mass_error(), MassTolerance(32));
    EXPECT_GT(sequence.largest_mass_error(), 0.0);
    EXPECT_GT(sequence.kv().stats().evictions, 0u);
  }
}

TEST(ReferenceAttentionTest, ReadsAPromptLayerByLayer) {
  for (const bool swa : {false, true}) {
    TieredCase sequence(Reference(swa));
    sequence.PromptByLayers(500, Compared::kWithOracle);
    for (uint32_t step = 0; step < 10; ++step) sequence.Step(1, Compared::kWithOracle);
    sequence.ExpectSound();
    EXPECT_EQ(sequence.largest_f16_error(), 0.0);
    EXPECT_EQ(sequence.largest_code_error(), 0.0);
    EXPECT_LT(sequence.largest_mass_error(), MassTolerance(32));
  }
}

TEST(ReferenceAttentionTest, CountsAsTheScoringSays) {
  TieredConfig config = Reference(false);
  config.scoring = {
      .when = ScoreWhen::kEvent, .prior_tokens = kAllTokens, .group = GroupMass::kMax};
  TieredCase sequence(config);
  sequence.PromptByLayers(500, Compared::kWithOracle);
  for (uint32_t step = 0; step < 20; ++step) sequence.Step(1, Compared::kWithOracle);
  sequence.ExpectSound();
  EXPECT_LT(sequence.largest_mass_error(), MassTolerance(500));
  EXPECT_GT(sequence.largest_mass_error(), 0.0);
}

TEST(ReferenceAttentionTest, TheOutputDoesNotDependOnTheNumberOfThreads) {
  const auto run = [](uint32_t threads) {
    TieredConfig config = Reference(true);
    config.threads = threads;
    TieredCase sequence(config);
    std::vector<float> all;
    for (uint32_t step = 0; step < 60; ++step) {
      const std::vector<float> out = sequence.Step(BatchOf(step));
      all.insert(all.end(), out.begin(), out.end());
    }
    return all;
  };
  const std::vector<float> one = run(1);
  EXPECT_TRUE(one == run(2));
  EXPECT_TRUE(one == run(3));
}

// Only a prompt's last tokens vote, however small the chunks are in which it passes.
TEST(ReferenceAttentionTest, AChunkOfOneTokenVotesWhenItIsAmongTheLastOnes) {
  for (const bool reference : {false, true}) {
    TieredConfig config = Reference(false);
    config.reference = reference;
    TieredCase chunks(config);
    config.max_batch_tokens = 1;
    TieredCase tokens(config);
    for (TieredCase* sequence : {&chunks, &tokens}) {
      sequence->PromptByLayers(400, Compared::kWithOracle);
      EXPECT_LT(sequence->largest_mass_error(), 1e-4);
      EXPECT_GT(sequence->largest_mass_error(), 0.0);  // masses were compared
    }
  }
}

}  // namespace
}  // namespace qevict::test
