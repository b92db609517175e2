#include "core/check.h"

#include <gtest/gtest.h>

namespace qevict {
namespace {

int Next(int& value) { return ++value; }

TEST(CheckTest, AFailedComparisonPrintsTheValuesThatWereCompared) {
  int value = 0;
  EXPECT_DEATH(QEVICT_CHECK_EQ(Next(value), 7), "check failed: .* \\(1 vs\\. 7\\)");
}

TEST(CheckTest, BothSidesAreEvaluatedOnce) {
  int value = 0;
  QEVICT_CHECK_LT(Next(value), 2);
  EXPECT_EQ(value, 1);
}

TEST(CheckTest, AFailedConditionPrintsItselfAlone) {
  const bool ready = false;
  EXPECT_DEATH(QEVICT_CHECK(ready), "check failed: ready\n$");
}

}  // namespace
}  // namespace qevict
