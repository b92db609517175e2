#include "model/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "support/random.h"
#include "support/read_model.h"
#include "support/tiny_model.h"

namespace qevict::test {
namespace {

using ::testing::HasSubstr;

// A tiny vocabulary of bytes and control tokens, and logits that prefer the tokens of a text.
class SamplerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    file_ = new TinyModelFile(TinyModelConfig{});
    tokenizer_ = LoadTokenizer(file_->path()).value().release();
  }
  static void TearDownTestSuite() {
    delete tokenizer_;
    delete file_;
  }
  static Sampler Make(const SamplingConfig& config) {
    auto sampler = Sampler::Create(*tokenizer_, config);
    EXPECT_TRUE(sampler) << sampler.error().message;
    return std::move(*sampler);
  }
  static std::vector<float> RandomLogits(uint64_t seed) {
    Random random(seed);
    std::vector<float> logits(tokenizer_->vocab_size());
    for (float& logit : logits) logit = random.Normal() * 3;
    return logits;
  }
  static Token TokenOf(const char* text) {
    return tokenizer_->Encode(text, SpecialText::kParse, Bos::kNever).value().at(0);
  }
  // Text that the sampler writes when every token's logit is random, until it ends or `limit`.
  static std::string Write(Sampler& sampler, size_t limit, uint64_t seed) {
    std::string text;
    for (size_t i = 0; i < limit; ++i) {
      const Token token = sampler.Sample(RandomLogits(seed * 1000 + i));
      sampler.Accept(token, Sampler::Origin::kGenerated);
      if (tokenizer_->IsEndOfGeneration(token)) return text + "<end>";
      text += tokenizer_->Piece(token);
    }
    return text;
  }
  static TinyModelFile* file_;
  static Tokenizer* tokenizer_;
};
TinyModelFile* SamplerTest::file_ = nullptr;
Tokenizer* SamplerTest::tokenizer_ = nullptr;

TEST_F(SamplerTest, GreedyTakesTheLargestLogitAndTheLowerTokenOfEqualOnes) {
  Sampler sampler = Make({});
  std::vector<float> logits(tokenizer_->vocab_size(), -1.0f);
  logits[70] = logits[300] = logits[511] = 2.5f;
  EXPECT_EQ(sampler.Sample(logits), 70);
  logits[70] = NAN;
  EXPECT_EQ(sampler.Sample(logits), 300);
}

TEST_F(SamplerTest, LogitsWithoutAnyPossibleTokenEndTheAnswer) {
  for (const float temperature : {0.0f, 1.0f}) {
    SamplingConfig config;
    config.temperature = temperature;
    const std::vector<float> logits(tokenizer_->vocab_size(), -INFINITY);
    EXPECT_TRUE(tokenizer_->IsEndOfGeneration(Make(config).Sample(logits)));
  }
}

TEST_F(SamplerTest, TheSameSeedDrawsTheSameTokensAndAnotherSeedOthers) {
  const auto draw = [&](uint32_t seed) {
    SamplingConfig config;
    config.temperature = 1.5f;
    config.seed = seed;
    Sampler sampler = Make(config);
    std::vector<Token> tokens;
    for (uint64_t i = 0; i < 64; ++i) tokens.push_back(sampler.Sample(RandomLogits(i)));
    return tokens;
  };
  EXPECT_EQ(draw(7), draw(7));
  EXPECT_NE(draw(7), draw(8));
  EXPECT_EQ(draw(UINT32_MAX), draw(UINT32_MAX));  // libllama's "random seed"
}

TEST_F(SamplerTest, DrawsFollowTheSoftmaxOfTheLogitsOverTheTemperature) {
  for (const int32_t top_k : {0, 4}) {
    SamplingConfig config;
    config.temperature = 0.5f;
    config.top_k = top_k;
    config.top_p = 1.0f;
    config.min_p = 0.0f;
    Sampler sampler = Make(config);
    std::vector<float> logits(tokenizer_->vocab_size(), -INFINITY);
    const float probabilities[] = {0.1f, 0.2f, 0.3f, 0.4f};
    for (size_t i = 0; i < 4; ++i) logits[100 * i + 5] = 0.5f * std::log(probabilities[i]);
    std::map<Token, int> drawn;
    constexpr int kDraws = 20'000;
    for (int i = 0; i < kDraws; ++i) ++drawn[sampler.Sample(logits)];
    ASSERT_EQ(drawn.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      // Four standard deviations of a share: 4 * sqrt(0.25 / 20000) = 0.014.
      EXPECT_NEAR(double(drawn[Token(100 * i + 5)]) / kDraws, probabilities[i], 0.014);
    }
  }
}

std::set<Token> DrawMany(Sampler& sampler, const std::vector<float>& logits) {
  std::set<Token> drawn;
  for (int i = 0; i < 3000; ++i) drawn.insert(sampler.Sample(logits));
  return drawn;
}

TEST_F(SamplerTest, TopKTopPAndMinPLimitWhatCanBeDrawn) {
  std::vector<float> logits(tokenizer_->vocab_size(), -INFINITY);
  const float probabilities[] = {0.5f, 0.25f, 0.15f, 0.08f, 0.02f};
  for (size_t i = 0; i < 5; ++i) logits[i] = std::log(probabilities[i]);
  SamplingConfig config{.temperature = 1.0f, .top_k = 0, .top_p = 1.0f, .min_p = 0.0f};
  {
    Sampler sampler = Make(config);
    EXPECT_EQ(DrawMany(sampler, logits).size(), 5u);
  }
  auto top_k = config, top_p = config, min_p = config;
  top_k.top_k = 2;
  top_p.top_p = 0.85f;  // 0.5 + 0.25 + 0.15 reach it
  min_p.min_p = 0.12f;  // of 0.5: at least 0.06
  for (const auto& [limited, count] : {std::pair{top_k, 2u}, {top_p, 3u}, {min_p, 4u}}) {
    Sampler sampler = Make(limited);
    EXPECT_EQ(DrawMany(sampler, logits).size(), count);
  }
}

TEST_F(SamplerTest, ThePenaltyLowersRecentTokensOnly) {
  SamplingConfig config;
  config.repeat_penalty = 2.0f;
  config.repeat_last_n = 2;
  Sampler sampler = Make(config);
  std::vector<float> logits(tokenizer_->vocab_size(), -8.0f);
  logits[10] = 4.0f, logits[20] = 3.0f, logits[30] = 2.5f;
  EXPECT_EQ(sampler.Sample(logits), 10);
  sampler.Accept(10, Sampler::Origin::kPrompt);
  EXPECT_EQ(sampler.Sample(logits), 20);  // 4 / 2 < 3
  sampler.Accept(20, Sampler::Origin::kGenerated);
  EXPECT_EQ(sampler.Sample(logits), 30);
  sampler.Accept(20, Sampler::Origin::kGenerated);  // pushes 10 out
  EXPECT_EQ(sampler.Sample(logits), 10);

  std::vector<float> negative(tokenizer_->vocab_size(), -8.0f);
  negative[20] = -3.0f, negative[40] = -4.0f;
  EXPECT_EQ(sampler.Sample(negative), 40);  // -3 * 2 < -4
}

TEST_F(SamplerTest, WhatAGrammarWritesMatchesIt) {
  for (const float temperature : {0.0f, 1.0f}) {
    for (const int32_t top_k : {0, 40}) {
      SamplingConfig config{
          .temperature = temperature, .top_k = top_k, .top_p = 1.0f, .min_p = 0.0f};
      config.grammar = "root ::= (\"yes\" | \"no\") \" \" [0-9] [0-9] [0-9]";
      for (uint64_t seed = 0; seed < 20; ++seed) {
        Sampler sampler = Make(config);
        EXPECT_THAT(Write(sampler, 50, seed),
                    ::testing::MatchesRegex("(yes|no) [0-9][0-9][0-9]<end>"));
      }
    }
  }
}

TEST_F(SamplerTest, GreedyUnderAGrammarTakesTheBestAllowedToken) {
  SamplingConfig config;
  config.grammar = "root ::= [a-z]+";
  Sampler sampler = Make(config);
  std::vector<float> logits = RandomLogits(1);
  Token best = -1;
  for (Token token = 0; size_t(token) < logits.size(); ++token) {
    const std::string piece = tokenizer_->Piece(token);
    const bool allowed = !piece.empty() &&
                         piece.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos;
    if (allowed && (best < 0 || logits[size_t(token)] > logits[size_t(best)])) best = token;
    if (!allowed) logits[size_t(token)] += 20.0f;  // far more than the sampler tries first
  }
  EXPECT_EQ(sampler.Sample(logits), best);
}

TEST_F(SamplerTest, WhatAJsonSchemaWritesIsThatJson) {
  SamplingConfig config{.temperature = 1.0f};
  config.json_schema = R"({"type":"object","properties":{"ok":{"type":"boolean"}},)"
                       R"("required":["ok"],"additionalProperties":false})";
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Sampler sampler = Make(config);
    EXPECT_THAT(
        Write(sampler, 200, seed),
        ::testing::MatchesRegex("[{][ \n\t]*\"ok\"[ \n\t]*:[ \n\t]*(true|false)[ \n\t]*[}]<end>"));
  }
}

TEST_F(SamplerTest, ThePromptDoesNotAdvanceTheGrammar) {
  SamplingConfig config;
  config.grammar = "root ::= \"x\"";
  Sampler sampler = Make(config);
  sampler.Accept(TokenOf("a"), Sampler::Origin::kPrompt);
  EXPECT_EQ(Write(sampler, 10, 1), "x<end>");
}

TEST_F(SamplerTest, ATokenThatTheGrammarForbidsEndsTheAnswer) {
  for (const char* forbidden : {"a", "<|im_end|>"}) {
    SamplingConfig config;
    config.grammar = "root ::= \"xyz\"";
    Sampler sampler = Make(config);
    sampler.Accept(TokenOf(forbidden), Sampler::Origin::kGenerated);
    EXPECT_TRUE(tokenizer_->IsEndOfGeneration(sampler.Sample(RandomLogits(1))));
  }
}

TEST_F(SamplerTest, AnOptionOutOfRangeIsNamedAsItsFlag) {
  const auto expect = [&](SamplingConfig config, const char* flag) {
    const auto sampler = Sampler::Create(*tokenizer_, config);
    ASSERT_FALSE(sampler) << flag;
    EXPECT_EQ(sampler.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(sampler.error().message, HasSubstr(flag));
  };
  for (const float bad : {-0.1f, NAN, INFINITY, 101.0f}) {
    expect({.temperature = bad}, "--temp");
    expect({.min_p = bad}, "--min-p");
    expect({.repeat_penalty = bad}, "--repeat-penalty");
    expect({.top_p = bad}, "--top-p");
  }
  expect({.top_p = 0.0f}, "--top-p");
  expect({.repeat_penalty = 0.0f}, "--repeat-penalty");
  expect({.top_k = -1}, "--top-k");
  expect({.repeat_last_n = -1}, "--repeat-last-n");
  SamplingConfig both;
  both.grammar = "root ::= \"a\"";
  both.json_schema = "{}";
  expect(both, "--json-schema");
}

TEST_F(SamplerTest, ABadGrammarIsRefusedWithItsReasonAndNothingOnStandardError) {
  const std::map<std::string, const char*> bad = {
      {"root ::= \"a", "unexpected end of input"},
      {"root ::= undefined", "undefined"},
      {"start ::= \"a\"", "root"},
      {"root ::= root \"a\" | \"b\"", "left recursion"},
      {"root ::= \xFF", "UTF-8"},
      {std::string("root ::= \"a\"\0", 13), "zero byte"},
      {"root ::= " + std::string(100'000, '(') + "\"a\"" + std::string(100'000, ')'), "levels"},
      {"root ::= [\"#] " + std::string(100'000, '('), "levels"},
      {"root ::= \"a\"{100000000,}", "repetitions"},
  };
  for (const auto& [grammar, reason] : bad) {
    SamplingConfig config;
    config.grammar = grammar;
    ::testing::internal::CaptureStderr();
    const auto sampler = Sampler::Create(*tokenizer_, config);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << grammar.substr(0, 60);
    ASSERT_FALSE(sampler) << grammar.substr(0, 60);
    EXPECT_EQ(sampler.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(sampler.error().message, HasSubstr(reason));
    EXPECT_EQ(sampler.error().message.find('\n'), std::string::npos);
  }
}

TEST_F(SamplerTest, ABadJsonSchemaIsRefused) {
  for (const std::string& schema :
       {std::string("{\"type\":"), std::string("{\"type\":\"colour\"}"),
        std::string("{\"$ref\":\"#/nowhere\"}"), std::string(100'000, '['),
        std::string("{\"type\":\"string\",\"pattern\":\"^(a\"}")}) {
    SamplingConfig config;
    config.json_schema = schema;
    const auto sampler = Sampler::Create(*tokenizer_, config);
    ASSERT_FALSE(sampler) << schema.substr(0, 60);
    EXPECT_EQ(sampler.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(sampler.error().message, HasSubstr("--json-schema"));
    EXPECT_EQ(sampler.error().message.find('\n'), std::string::npos) << sampler.error().message;
  }
}

}  // namespace
}  // namespace qevict::test
