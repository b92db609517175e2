#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/define_variants.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/exp_probe.h"

namespace qevict {

QEVICT_DEFINE_VARIANTS(ExpProbe)

void ExpProbeScalar(const ExpProbeArgs& args) {
  for (size_t i = 0; i < args.count; ++i) {
    args.x[i] = args.x[i] < -86.0f ? 0.0f : std::exp(args.x[i]);
  }
}

namespace {

class ExpTest : public ::testing::TestWithParam<KernelVariant<ExpProbeFn>> {
 protected:
  void SetUp() override { QEVICT_SKIP_WITHOUT(GetParam()); }
  std::vector<float> Exp(std::vector<float> x) {
    x.resize((x.size() + 15) / 16 * 16);
    GetParam().run({x.data(), x.size()});
    return x;
  }
};

TEST_P(ExpTest, RelativeErrorStaysBelowItsBound) {
  std::vector<float> x;
  for (int i = 0; i <= 1 << 20; ++i) x.push_back(-86.0f * float(i) / float(1 << 20));
  const std::vector<float> y = Exp(x);
  for (size_t i = 0; i < x.size(); ++i) {
    // 1.7e-7 of the polynomial, and log2(e) itself is off by 1.4e-8 of x, up to 1.2e-6 at the end.
    const double exact = std::exp(double(x[i])), bound = 2e-7 + 1.4e-8 * std::abs(double(x[i]));
    ASSERT_NEAR(double(y[i]), exact, bound * exact) << x[i];
  }
}

TEST_P(ExpTest, ZeroGivesExactlyOneAndVerySmallExponentsGiveExactlyZero) {
  const std::vector<float> y =
      Exp({0.0f, -0.0f, -86.5f, -1000.0f, -1e30f, -std::numeric_limits<float>::max(),
           -std::numeric_limits<float>::infinity()});
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], 1.0f);
  for (size_t i = 2; i < 7; ++i) EXPECT_EQ(y[i], 0.0f) << i;
}

INSTANTIATE_TEST_SUITE_P(Levels, ExpTest, ::testing::ValuesIn(ExpProbeVariants()),
                         VariantName<KernelVariant<ExpProbeFn>>);

}  // namespace
}  // namespace qevict
