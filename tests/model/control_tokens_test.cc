#include "model/control_tokens.h"

#include <gtest/gtest.h>

#include "model/tokenizer.h"
#include "support/read_model.h"
#include "support/tiny_model.h"

namespace qevict::test {
namespace {

class ControlTokensTest : public ::testing::Test {
 protected:
  const TinyModelFile file_{TinyModelConfig{}};  // <|endoftext|>, <|im_start|>, <|im_end|>
  const std::unique_ptr<Tokenizer> tokenizer_ = LoadTokenizer(file_.path()).value();
  const ControlTokens control_tokens_{tokenizer_->vocab()};
};

TEST_F(ControlTokensTest, TheFirstOneAtOrAfterAPlaceIsFound) {
  const std::string text = "a<|im_end|>b<|im_start|>";
  const auto first = control_tokens_.Find(text, 0), second = control_tokens_.Find(text, 2);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->offset, 1u);
  EXPECT_EQ(first->bytes, 10u);
  EXPECT_EQ(first->token,
            tokenizer_->Encode("<|im_end|>", SpecialText::kParse, Bos::kNever).value().at(0));
  EXPECT_EQ(second->offset, 12u);
  EXPECT_FALSE(control_tokens_.Find(text, 13));
}

TEST_F(ControlTokensTest, WhatIsOnlyAlmostOneIsNone) {
  EXPECT_FALSE(control_tokens_.Find("<|im_end| > <|im_END|> <unused300> im_end|>", 0));
}

TEST_F(ControlTokensTest, AnEndThatMoreTextCouldCompleteIsOpen) {
  EXPECT_EQ(control_tokens_.OpenEnd("x <|im_st"), 7u);
  EXPECT_EQ(control_tokens_.OpenEnd("x <|im_end|><"), 1u);
  EXPECT_EQ(control_tokens_.OpenEnd("x <|im_end|>"), 0u);
  EXPECT_EQ(control_tokens_.OpenEnd("x <| "), 0u);
  EXPECT_EQ(control_tokens_.OpenEnd(""), 0u);
}

}  // namespace
}  // namespace qevict::test
