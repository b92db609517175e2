#include "bench/e2e/cache_json.h"

#include <gtest/gtest.h>

namespace qevict::bench {
namespace {

Result<CacheConfig> ThereAndBack(const CacheConfig& cache) {
  return ReadCacheJson(nlohmann::json::parse(CacheJson(cache).dump()));
}

TEST(CacheJsonTest, EveryOptionReachesTheWorker) {
  CacheConfig chosen{.policy = CachePolicy::kEvict,
                     .budget = KvBudget{.share = 0.2},
                     .kv_type = KvType::kQ8,
                     .geometry = {.omega = 16, .sinks = 5, .local = 48},
                     .key_bits = 2,
                     .value_bits = 4,
                     .full_share = 0.7f,
                     .promotion = Promotion::kPin,
                     .prefill = PrefillMode::kStream,
                     .tables_folder = "tables"};
  chosen.scoring_choice = {.when = ScoreWhen::kEvent,
                           .prior_tokens = kAllTokens,
                           .group = GroupMass::kMax,
                           .per_voter = true,
                           .value_weighted = true};
  const Result<CacheConfig> read = ThereAndBack(chosen);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->policy, chosen.policy);
  ASSERT_TRUE(read->budget);
  EXPECT_EQ(read->budget->share, chosen.budget->share);
  EXPECT_EQ(read->budget->bytes, 0u);
  EXPECT_EQ(read->kv_type, chosen.kv_type);
  EXPECT_EQ(read->geometry.omega, chosen.geometry.omega);
  EXPECT_EQ(read->geometry.sinks, chosen.geometry.sinks);
  EXPECT_EQ(read->geometry.local, chosen.geometry.local);
  EXPECT_EQ(read->key_bits, chosen.key_bits);
  EXPECT_EQ(read->value_bits, chosen.value_bits);
  EXPECT_EQ(read->full_share, chosen.full_share);
  EXPECT_EQ(read->promotion, chosen.promotion);
  EXPECT_EQ(read->prefill, chosen.prefill);
  EXPECT_EQ(read->tables_folder, chosen.tables_folder);
  EXPECT_EQ(read->scoring_choice.when, chosen.scoring_choice.when);
  EXPECT_EQ(read->scoring_choice.prior_tokens, chosen.scoring_choice.prior_tokens);
  EXPECT_EQ(read->scoring_choice.group, chosen.scoring_choice.group);
  EXPECT_TRUE(read->scoring_choice.per_voter);
  EXPECT_TRUE(read->scoring_choice.value_weighted);
}

TEST(CacheJsonTest, WhatWasNotChosenIsLeftToTheWorker) {
  const CacheConfig cache;
  const Result<CacheConfig> read = ThereAndBack(cache);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->policy, cache.policy);
  EXPECT_FALSE(read->budget);
  EXPECT_FALSE(read->key_bits);
  EXPECT_FALSE(read->value_bits);
  EXPECT_EQ(read->kv_type, cache.kv_type);
  EXPECT_EQ(read->promotion, cache.promotion);
  EXPECT_EQ(read->prefill, cache.prefill);
  EXPECT_FALSE(read->scoring_choice.when);
  EXPECT_FALSE(read->scoring_choice.prior_tokens);
  EXPECT_FALSE(read->scoring_choice.group);
  EXPECT_FALSE(read->scoring_choice.per_voter);
  EXPECT_FALSE(read->scoring_choice.value_weighted);
}

}  // namespace
}  // namespace qevict::bench
