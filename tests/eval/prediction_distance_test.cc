#include "eval/prediction_distance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/random.h"

namespace qevict::test {
namespace {

// Logits whose softmax is `probabilities`, moved by a constant that must not matter.
std::vector<float> LogitsOf(const std::vector<double>& probabilities, float constant) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(float(std::log(p)) + constant);
  return logits;
}

TEST(PredictionDistanceTest, IsWhatAHandExampleSays) {
  // KL = 1/2 log(1/2 / 1/4) + 1/4 log(1/4 / 1/2) + 1/4 log(1/4 / 1/4) = 1/4 log 2, and the other
  // prediction gives the token that comes half the probability. Logits near 20 are rounded to
  // 2^-20.
  const PredictionDistance distance = ComparePredictions(
      LogitsOf({0.5, 0.25, 0.25}, 20.0f), LogitsOf({0.25, 0.5, 0.25}, -3.0f), Token(0));
  EXPECT_NEAR(distance.kl, 0.25 * std::log(2.0), 0x1p-19);
  EXPECT_NEAR(distance.log_loss_change, std::log(2.0), 0x1p-19);
  EXPECT_FALSE(distance.same_top);
}

TEST(PredictionDistanceTest, HasADirection) {
  // KL(p || q) = 0.9 log 1.8 + 0.1 log 0.2; KL(q || p) = 0.5 log(5/9) + 0.5 log 5.
  const auto sure = LogitsOf({0.9, 0.1}, 0.0f), unsure = LogitsOf({0.5, 0.5}, 0.0f);
  EXPECT_NEAR(ComparePredictions(sure, unsure, Token(1)).kl,
              0.9 * std::log(1.8) + 0.1 * std::log(0.2), 1e-6);
  EXPECT_NEAR(ComparePredictions(unsure, sure, Token(1)).kl,
              0.5 * std::log(5.0 / 9.0) + 0.5 * std::log(5.0), 1e-6);
}

TEST(PredictionDistanceTest, EqualLogitsDifferByExactlyNothing) {
  Random random(7);
  std::vector<float> logits(5000);
  for (float& logit : logits) logit = 10.0f * random.Normal();
  const PredictionDistance distance = ComparePredictions(logits, logits, Token(17));
  EXPECT_EQ(distance.kl, 0.0);
  EXPECT_EQ(distance.log_loss_change, 0.0);
  EXPECT_TRUE(distance.same_top);
}

TEST(PredictionDistanceTest, LargeLogitsDoNotOverflow) {
  const std::vector<float> full = {30000.0f, 29999.0f}, other = {-30000.0f, -30001.0f};
  const PredictionDistance distance = ComparePredictions(full, other, Token(0));
  EXPECT_NEAR(distance.kl, 0.0, 1e-9);
  EXPECT_TRUE(distance.same_top);
}

TEST(PredictionDistanceTest, OfEqualLogitsTheFirstIsTheLikeliest) {
  const std::vector<float> full = {1.0f, 3.0f, 3.0f}, other = {0.0f, 0.0f, 1.0f};
  EXPECT_FALSE(ComparePredictions(full, other, Token(0)).same_top);
  EXPECT_TRUE(ComparePredictions(full, full, Token(0)).same_top);
}

TEST(PredictionDistanceTest, LogitsThatAreNotNumbersShow) {
  const std::vector<float> full = {1.0f, 2.0f};
  const std::vector<float> other = {1.0f, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_FALSE(std::isfinite(ComparePredictions(full, other, Token(0)).kl));
}

}  // namespace
}  // namespace qevict::test
