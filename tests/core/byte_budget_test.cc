#include "qevict/byte_budget.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <vector>

namespace qevict {
namespace {

TEST(ByteBudgetTest, AClaimHoldsItsBytesUntilItDies) {
  ByteBudget budget(100);
  {
    auto claim = budget.Reserve(60);
    ASSERT_TRUE(claim.has_value());
    EXPECT_EQ(budget.used_bytes(), 60u);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
  EXPECT_EQ(budget.peak_bytes(), 60u);
}

TEST(ByteBudgetTest, TheLastByteCanBeTakenAndOneMoreIsRefusedWithoutChange) {
  ByteBudget budget(100);
  auto all = budget.Reserve(100);
  ASSERT_TRUE(all.has_value());
  const auto one = budget.Reserve(1);
  ASSERT_FALSE(one.has_value());
  EXPECT_EQ(one.error().code, ErrorCode::kBudgetExceeded);
  EXPECT_EQ(budget.used_bytes(), 100u);
}

TEST(ByteBudgetTest, AHugeRequestDoesNotWrapAround) {
  ByteBudget budget(100);
  auto some = budget.Reserve(50);
  EXPECT_FALSE(budget.Reserve(SIZE_MAX).has_value());
  EXPECT_FALSE(budget.Reserve(SIZE_MAX - 49).has_value());
}

TEST(ByteBudgetTest, MovingAClaimMovesItsBytesOnce) {
  ByteBudget budget(100);
  std::optional<ByteBudget::Claim> kept;
  {
    ByteBudget::Claim claim = budget.Reserve(30).value();
    kept.emplace(std::move(claim));
  }
  EXPECT_EQ(budget.used_bytes(), 30u);
  kept.reset();
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(ByteBudgetTest, ReplacingAClaimGivesTheOldBytesBack) {
  ByteBudget budget(100);
  ByteBudget::Claim claim = budget.Reserve(30).value();
  claim = budget.Reserve(50).value();
  EXPECT_EQ(budget.used_bytes(), 50u);
}

TEST(ByteBudgetTest, ReplacingAClaimGivesTheOldBytesBackWhileTheMovedFromClaimLives) {
  ByteBudget budget(100);
  ByteBudget::Claim claim = budget.Reserve(30).value(), other = budget.Reserve(50).value();
  claim = std::move(other);
  EXPECT_EQ(budget.used_bytes(), 50u);
  EXPECT_EQ(claim.bytes(), 50u);
}

TEST(ByteBudgetTest, UsedIsTheSumOfLiveClaimsOverRandomSequences) {
  std::mt19937 random(7);
  ByteBudget budget(10'000);
  std::vector<ByteBudget::Claim> claims;
  for (int step = 0; step < 20'000; ++step) {
    if (random() % 2 == 0 || claims.empty()) {
      if (auto claim = budget.Reserve(random() % 3000)) claims.push_back(std::move(*claim));
    } else {
      std::swap(claims[random() % claims.size()], claims.back());
      claims.pop_back();
    }
    size_t sum = 0;
    for (const auto& claim : claims) sum += claim.bytes();
    ASSERT_EQ(budget.used_bytes(), sum);
    ASSERT_LE(budget.used_bytes(), budget.limit_bytes());
  }
}

}  // namespace
}  // namespace qevict
