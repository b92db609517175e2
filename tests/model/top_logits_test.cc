#include "model/top_logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "support/random.h"

namespace qevict::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The plain way: sort everything.
std::vector<ScoredToken> Sorted(const LogitView& view) {
  std::vector<ScoredToken> all;
  for (size_t i = 0; i < view.logits.size(); ++i) all.push_back({Token(i), view.logits[i]});
  for (const ScoredToken& o : view.overrides) all[size_t(o.token)] = o;
  std::erase_if(all, [](const ScoredToken& s) { return !(s.logit > -kInfinity); });
  std::ranges::stable_sort(
      all, [](const ScoredToken& a, const ScoredToken& b) { return a.logit > b.logit; });
  return all;
}

void ExpectEqual(const std::vector<ScoredToken>& a, std::span<const ScoredToken> b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].token, b[i].token) << i;
    ASSERT_EQ(a[i].logit, b[i].logit) << i;
  }
}

TEST(TopLogitsTest, AgreesWithSortingEverything) {
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    const size_t vocab = 1 + random.Below(round % 10 == 0 ? 5000 : 70);
    std::vector<float> logits(vocab);
    // Few different values, so that ties are common.
    for (float& logit : logits) {
      const uint64_t kind = random.Below(20);
      logit = kind == 0 ? kNan : kind == 1 ? -kInfinity : float(random.Below(40)) - 20.0f;
    }
    std::vector<ScoredToken> overrides;
    for (Token t = 0; size_t(t) < vocab; t += Token(1 + random.Below(30))) {
      overrides.push_back({t, random.Below(3) ? random.Normal() * 10 : -kInfinity});
    }
    const LogitView view{logits, overrides};
    const std::vector<ScoredToken> expected = Sorted(view);

    const auto largest = LargestLogit(view);
    ASSERT_EQ(largest.has_value(), !expected.empty());
    if (largest) {
      ASSERT_EQ(largest->token, expected[0].token);
    }
    std::vector<ScoredToken> best;
    for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, vocab, vocab + 5}) {
      LargestLogits(view, count, best);
      ExpectEqual(best, std::span(expected).first(std::min(count, expected.size())));
    }
    FiniteLogits(view, best);
    ASSERT_EQ(best.size(), expected.size());
  }
}

TEST(TopLogitsTest, WithoutAFiniteLogitThereIsNoLargest) {
  const std::vector<float> logits = {-kInfinity, kNan, -kInfinity};
  std::vector<ScoredToken> best;
  LargestLogits({logits, {}}, 2, best);
  EXPECT_TRUE(best.empty());
  EXPECT_FALSE(LargestLogit({logits, {}}));
  EXPECT_FALSE(LargestLogit({}));
}

}  // namespace
}  // namespace qevict::test
