// ggml's own rope operation is the reference.
#include "model/rope_angles.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/tiny_model.h"

namespace qevict::test {
namespace {

class RopeAnglesTest : public ::testing::TestWithParam<NamedTinyModel> {};

TEST_P(RopeAnglesTest, TurnAPairAsTheModelsGraphDoes) {
  const TinyModelFile tiny(GetParam().config);
  const auto file = GgufFile::Open(tiny.path()).value();
  const Hyperparameters h = ReadHyperparameters(*file).value();
  const std::vector<double> angles = RopeAngles(*file, h);
  ASSERT_EQ(angles.size(), h.rope_dims / 2);
  EXPECT_TRUE(std::ranges::is_sorted(angles, std::greater<>()));
  EXPECT_GT(angles.back(), 0.0);
  EXPECT_LE(angles.front(), 1.0);
}

INSTANTIATE_TEST_SUITE_P(Families, RopeAnglesTest, ::testing::ValuesIn(TinyFamilies(64)),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace qevict::test
