#include "core/isa.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace qevict {
namespace {

class IsaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* value = std::getenv("QEVICT_ISA")) saved_ = value;
  }
  void TearDown() override {
    saved_.empty() ? unsetenv("QEVICT_ISA") : setenv("QEVICT_ISA", saved_.c_str(), 1);
  }
  std::string saved_;
};

TEST_F(IsaTest, WithoutForcingTheFastestLevelIsChosen) {
  unsetenv("QEVICT_ISA");
  EXPECT_EQ(SelectIsa().value(), SupportedIsas().front());
}

TEST_F(IsaTest, EverySupportedLevelCanBeForced) {
  for (Isa isa : SupportedIsas()) {
    setenv("QEVICT_ISA", std::string(IsaName(isa)).c_str(), 1);
    EXPECT_EQ(SelectIsa().value(), isa);
  }
}

TEST_F(IsaTest, AForcedLevelThatTheCpuLacksIsAnErrorThatListsWhatItHas) {
  setenv("QEVICT_ISA", "avx9000", 1);
  const auto isa = SelectIsa();
  ASSERT_FALSE(isa.has_value());
  EXPECT_EQ(isa.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(isa.error().message.find("avx9000"), std::string::npos);
  EXPECT_NE(isa.error().message.find("scalar"), std::string::npos);
}

TEST_F(IsaTest, ScalarIsAlwaysSupportedAndLast) { EXPECT_EQ(SupportedIsas().back(), Isa::kScalar); }

}  // namespace
}  // namespace qevict
