#include "kernels/attention_state/attention_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/attention_case.h"

namespace qevict {
namespace {

// The state of one row with two channels over keys with these scores; the value of key t is (t, 1).
StateCase StateOf(std::initializer_list<std::pair<int, float>> keys) {
  StateCase state(1, 2);
  for (const auto& [t, score] : keys) state.m[0] = std::max(state.m[0], score);
  for (const auto& [t, score] : keys) {
    const float p = std::exp(score - state.m[0]);
    state.d[0] += p;
    state.o[0] += p * float(t);
    state.o[1] += p;
  }
  return state;
}

void ExpectNear(const StateCase& actual, const StateCase& expected) {
  EXPECT_EQ(actual.m, expected.m);
  EXPECT_NEAR(actual.d[0], expected.d[0], 1e-6f * expected.d[0]);
  for (size_t c = 0; c < 2; ++c)
    EXPECT_NEAR(actual.o[c], expected.o[c], 1e-6f * expected.d[0] * 4.0f);
}

TEST(AttentionStateTest, PartsMergeToTheWholeInAnyOrder) {
  const StateCase whole = StateOf({{0, 1.0f}, {1, -2.0f}, {2, 3.0f}, {3, 0.5f}});
  StateCase ab = StateOf({{0, 1.0f}, {1, -2.0f}}), c = StateOf({{2, 3.0f}}),
            d = StateOf({{3, 0.5f}});
  StateCase forward = ab, backward = d;
  MergeState(forward.state(), c.state(), 1, 2);
  MergeState(forward.state(), d.state(), 1, 2);
  MergeState(backward.state(), c.state(), 1, 2);
  MergeState(backward.state(), ab.state(), 1, 2);
  ExpectNear(forward, whole);
  ExpectNear(backward, whole);
}

TEST(AttentionStateTest, AnEmptyPartChangesNothing) {
  const StateCase whole = StateOf({{0, 1.0f}, {1, -2.0f}});
  StateCase empty(1, 2), merged = whole;
  MergeState(merged.state(), empty.state(), 1, 2);
  EXPECT_EQ(merged.d, whole.d);
  EXPECT_EQ(merged.o, whole.o);
  StateCase source = whole;
  MergeState(empty.state(), source.state(), 1, 2);
  EXPECT_EQ(empty.m, whole.m);
  EXPECT_EQ(empty.d, whole.d);
  EXPECT_EQ(empty.o, whole.o);
}

TEST(AttentionStateTest, TwoEmptyPartsStayEmptyAndFinishAsZeros) {
  StateCase a(1, 2), b(1, 2);
  MergeState(a.state(), b.state(), 1, 2);
  EXPECT_EQ(a.m[0], -std::numeric_limits<float>::infinity());
  float out[2] = {7.0f, 7.0f};
  FinishState(a.state(), 1, 2, out, 2);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[1], 0.0f);
}

TEST(AttentionStateTest, APartFarBelowTheOtherVanishes) {
  StateCase high = StateOf({{5, 1000.0f}}), low = StateOf({{1, -1000.0f}});
  MergeState(low.state(), high.state(), 1, 2);
  EXPECT_EQ(low.m[0], 1000.0f);
  EXPECT_EQ(low.d[0], 1.0f);
  EXPECT_EQ(low.o[0], 5.0f);
}

TEST(AttentionStateTest, FinishDividesAndKeepsTheGapsBetweenRows) {
  StateCase state(2, 2);
  state.d = {2.0f, 4.0f};
  state.o = {2.0f, 6.0f, 4.0f, 8.0f};
  std::vector<float> out(6, 9.0f);
  FinishState(state.state(), 2, 2, out.data(), 3);
  EXPECT_EQ(out, (std::vector<float>{1.0f, 3.0f, 9.0f, 1.0f, 2.0f, 9.0f}));
}

}  // namespace
}  // namespace qevict
