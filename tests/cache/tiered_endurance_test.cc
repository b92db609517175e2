// The runs of tiered_sequence_test.cc, for longer than a fast test may take.
#include <gtest/gtest.h>

#include "tests/cache/tiered_case.h"

namespace qevict::test {
namespace {

class TieredEnduranceTest : public ::testing::TestWithParam<uint32_t> {};  // omega

TEST_P(TieredEnduranceTest, TenThousandStepsAreSoundAndAttendWhatTheSequenceHolds) {
  const uint32_t omega = GetParam();
  TieredConfig config{.shape = SmallShape(64, true),
                      .geometry = {.omega = omega, .sinks = 4, .local = 40},
                      .capacity = {.full = 80 / omega, .quantized = 1000 / omega},
                      .means = KeyMeans::kRandom,
                      .capacity_tokens = 16000,
                      .max_batch_tokens = 96};
  TieredCase sequence(config);
  for (uint32_t step = 0; step < 10'000; ++step) {
    const uint32_t tokens = step % 500 == 0 ? 1 + uint32_t(sequence.random().Below(96)) : 1;
    sequence.Step(tokens, step % 100 < 2 ? Compared::kWithOracle : Compared::kNot);
    sequence.ExpectSound();
    if (step % 100 == 0) sequence.ExpectStored();
    ASSERT_FALSE(HasFailure()) << "step " << step;
    // For the tolerances see tiered_sequence_test.cc; this sequence holds twice the tokens, so that
    // one that was lost moves a row by 3 %.
    ASSERT_LT(sequence.largest_f16_error(), 5e-5) << "step " << step;
    ASSERT_LT(sequence.largest_code_error(), 0.03) << "step " << step;
    ASSERT_LT(sequence.largest_mass_error(), 0.04) << "step " << step;
  }
  EXPECT_GT(sequence.kv().stats().promotions, 100u);
}

INSTANTIATE_TEST_SUITE_P(Omegas, TieredEnduranceTest, testing::Values(1, 8, 40),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace qevict::test
