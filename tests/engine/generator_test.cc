#include "engine/generator.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "support/read_model.h"
#include "support/real_model.h"
#include "support/tiny_model.h"

namespace qevict::test {
namespace {

class FakeSequence final : public Sequence {
 public:
  explicit FakeSequence(uint32_t capacity) : capacity_(capacity) {}
  uint32_t size_tokens() const override { return uint32_t(tokens_.size()); }
  uint32_t capacity_tokens() const override { return capacity_; }
  std::span<const Token> tokens() const override { return tokens_; }
  KvUsage kv_usage() const override { return {}; }
  Status Truncate(uint32_t size_tokens) override {
    tokens_.resize(size_tokens);
    return {};
  }
  SequenceKv& kv() override { std::abort(); }  // there is none, and a generator asks for none
  std::vector<Token> tokens_;
  uint32_t capacity_;
};

// Says a fixed text, whatever it is asked: the logits after the i-th token prefer script[i].
class FakeEngine final : public Engine {
 public:
  FakeEngine(const Tokenizer& tokenizer, std::vector<Token> script)
      : tokenizer_(tokenizer), script_(std::move(script)) {}
  const Hyperparameters& hyperparameters() const override { return hyperparameters_; }
  const Tokenizer& tokenizer() const override { return tokenizer_; }
  uint32_t threads() const override { return 1; }
  std::string_view isa_name() const override { return "fake"; }
  Result<std::unique_ptr<Sequence>> NewSequence(uint32_t capacity) override {
    return std::make_unique<FakeSequence>(capacity);
  }
  Result<std::unique_ptr<Sequence>> NewFullSequence(uint32_t capacity) override {
    return NewSequence(capacity);
  }
  const WindowCodec* codec() const override { return nullptr; }
  Status Run(std::span<BatchItem> batch, const CancelFn& cancel) override {
    auto& sequence = static_cast<FakeSequence&>(*batch[0].sequence);
    if (sequence.size_tokens() == sequence.capacity_tokens()) {
      return Fail(ErrorCode::kContextFull, "full");
    }
    if (cancel && cancel()) return Fail(ErrorCode::kCancelled, "cancelled");
    if (fail_at_ == sequence.size_tokens()) return Fail(ErrorCode::kInternal, "broken");
    sequence.tokens_.push_back(batch[0].tokens[0]);
    *batch[0].logits_out = LogitsAt(sequence.size_tokens());
    return {};
  }
  Status Prefill(Sequence&, std::span<const Token>, std::vector<float>*, const ProgressFn&,
                 const CancelFn&) override {
    std::abort();  // a generator decodes, and asks for none
  }
  std::vector<float> LogitsAt(size_t position) const {
    std::vector<float> logits(tokenizer_.vocab_size(), -10.0f);
    logits[size_t(script_[std::min(position, script_.size() - 1)])] = 10.0f;
    logits['?'] = 0.0f;  // the second choice
    return logits;
  }
  uint32_t fail_at_ = UINT32_MAX;

 private:
  const Tokenizer& tokenizer_;
  std::vector<Token> script_;
  Hyperparameters hyperparameters_;
};

class GeneratorTest : public ::testing::Test {
 protected:
  static std::vector<Token> Tokens(const Tokenizer& tokenizer, std::string_view text) {
    return tokenizer.Encode(text, SpecialText::kParse, Bos::kNever).value();
  }
  // Every byte its own token, then the end.
  std::vector<Token> Bytes(std::string_view text) const {
    std::vector<Token> tokens;
    for (Token byte = 0; byte < 256; ++byte) {
      // The tiny vocabulary begins with the 256 bytes.
      EXPECT_EQ(tokenizer_->Piece(byte), std::string(1, char(byte)));
    }
    for (const char c : text) tokens.push_back(Token(uint8_t(c)));
    tokens.push_back(Tokens(*tokenizer_, "<|im_end|>")[0]);
    return tokens;
  }
  Result<GenerateOutcome> Run(std::string_view script, const GenerateConfig& config,
                              uint32_t capacity = 100, const CancelFn& cancel = {}) {
    engine_ = std::make_unique<FakeEngine>(*tokenizer_, Bytes(script));
    engine_->fail_at_ = fail_at_;
    sequence_ = std::make_unique<FakeSequence>(capacity);
    Sampler sampler = Sampler::Create(*tokenizer_, sampling_).value();
    pieces_.clear();
    const TextFn on_text = [this](std::string_view text) { pieces_.emplace_back(text); };
    return Generate({.engine = engine_.get(),
                     .sequence = sequence_.get(),
                     .sampler = &sampler,
                     .logits = engine_->LogitsAt(0),
                     .config = &config,
                     .on_text = on_text,
                     .cancel = cancel});
  }
  std::string Streamed() const {
    std::string text;
    for (const std::string& piece : pieces_) text += piece;
    return text;
  }

  const TinyModelFile file_{TinyModelConfig{}};
  const std::unique_ptr<Tokenizer> tokenizer_ = LoadTokenizer(file_.path()).value();
  std::unique_ptr<FakeEngine> engine_;
  std::unique_ptr<FakeSequence> sequence_;
  SamplingConfig sampling_;
  std::vector<std::string> pieces_;
  uint32_t fail_at_ = UINT32_MAX;
};

TEST_F(GeneratorTest, TheAnswerEndsAtTheEndToken) {
  const auto outcome = Run("Hello", {});
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->text, "Hello");
  EXPECT_EQ(outcome->tokens.size(), 5u);
  EXPECT_EQ(outcome->reason, StopReason::kEndOfText);
  EXPECT_EQ(pieces_, (std::vector<std::string>{"H", "e", "l", "l", "o"}));
  EXPECT_EQ(sequence_->tokens_, outcome->tokens);
}

TEST_F(GeneratorTest, TheLastTokenOfALimitedAnswerIsNotRun) {
  const auto outcome = Run("Hello", {.max_tokens = 3, .stop_strings = {}});
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->text, "Hel");
  EXPECT_EQ(outcome->reason, StopReason::kMaxTokens);
  EXPECT_EQ(sequence_->size_tokens(), 2u);
}

TEST_F(GeneratorTest, WithoutALimitTheContextIsFilled) {
  const auto outcome = Run("Hello", {.max_tokens = 0, .stop_strings = {}}, /*capacity=*/3);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->reason, StopReason::kContextFull);
  EXPECT_EQ(outcome->text, "Hell");  // three tokens are kept, a fourth is known
  EXPECT_EQ(sequence_->size_tokens(), 3u);
}

TEST_F(GeneratorTest, AStopStringOverSeveralTokensIsNeverShown) {
  const auto outcome = Run("ab\nUser: x", {.max_tokens = 50, .stop_strings = {"\nUser:"}});
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->text, "ab");
  EXPECT_EQ(Streamed(), "ab");
  EXPECT_EQ(outcome->reason, StopReason::kStopString);
  EXPECT_EQ(outcome->tokens.size(), 8u);
}

TEST_F(GeneratorTest, HeldTextComesOutAtTheEnd) {
  EXPECT_EQ(Run("ab\nUs", {.max_tokens = 50, .stop_strings = {"\nUser:"}})->text, "ab\nUs");
  EXPECT_EQ(Streamed(), "ab\nUs");
  EXPECT_EQ(Run("ab\nUser", {.max_tokens = 4, .stop_strings = {"\nUser:"}})->text, "ab\nU");
}

TEST_F(GeneratorTest, CharactersAreStreamedWhole) {
  const std::string text = "\xF0\x9F\x98\x80!";
  EXPECT_EQ(Run(text, {})->text, text);
  EXPECT_EQ(pieces_, (std::vector<std::string>{"\xF0\x9F\x98\x80", "!"}));
  EXPECT_EQ(Run(text, {.max_tokens = 2, .stop_strings = {}})->text, "\xEF\xBF\xBD");
}

TEST_F(GeneratorTest, TheEndTokenCanBeIgnored) {
  GenerateConfig config;
  config.max_tokens = 6;
  config.ignore_end_of_text = true;
  const auto outcome = Run("ab", config);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->text, "ab????");
  EXPECT_EQ(outcome->reason, StopReason::kMaxTokens);
}

TEST_F(GeneratorTest, AGrammarThatIsCompleteEndsTheAnswer) {
  sampling_.grammar = "root ::= \"a\" [?] \"!\"";
  GenerateConfig config;
  config.ignore_end_of_text = true;
  const auto outcome = Run("abc", config);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->text, "a?!");
  EXPECT_EQ(outcome->reason, StopReason::kEndOfText);
}

TEST_F(GeneratorTest, CancellingKeepsWhatWasWritten) {
  // Asked before each sample and in each run.
  for (int allowed = 0; allowed < 6; ++allowed) {
    int asked = 0;
    const auto outcome = Run("Hello", {}, 100, [&] { return ++asked > allowed; });
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->reason, StopReason::kCancelled);
    EXPECT_EQ(outcome->text, std::string("Hello").substr(0, size_t(allowed + 1) / 2));
    EXPECT_EQ(Streamed(), outcome->text);
    EXPECT_EQ(sequence_->size_tokens(), uint32_t(allowed / 2));
  }
}

TEST_F(GeneratorTest, AnErrorOfTheEngineIsReturned) {
  fail_at_ = 2;
  const auto outcome = Run("Hello", {});
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::kInternal);
}

TEST_F(GeneratorTest, AStopStringThatCannotBeMetIsRefused) {
  for (const char* stop : {"", "\xFF"}) {
    const auto outcome = Run("Hello", {.max_tokens = 5, .stop_strings = {"ok", stop}});
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code, ErrorCode::kInvalidArgument);
    EXPECT_TRUE(pieces_.empty());
  }
}

TEST(GeneratorRealModelTest, AnAnswerIsStreamedAsItIsReturned) {
  const std::string path = RealModel(kSmolLm2);
  QEVICT_NEED_MODEL(path);
  auto engine = Engine::Load({.model_path = path, .threads = 2}).value();
  auto sequence = engine->NewSequence(256).value();
  Sampler sampler = Sampler::Create(engine->tokenizer(), {}).value();
  const auto prompt = engine->tokenizer()
                          .Encode(
                              "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
                              "<|im_start|>assistant\n",
                              SpecialText::kParse, Bos::kModelDefault)
                          .value();
  std::vector<float> logits;
  const Status prefill = engine->Prefill(*sequence, prompt, &logits);
  ASSERT_TRUE(prefill) << prefill.error().message;
  std::string streamed;
  const GenerateConfig config = {.max_tokens = 40, .stop_strings = {}};
  const auto outcome = Generate({.engine = engine.get(),
                                 .sequence = sequence.get(),
                                 .sampler = &sampler,
                                 .logits = logits,
                                 .config = &config,
                                 .on_text = [&](std::string_view text) { streamed += text; }});
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(streamed, outcome->text);
  EXPECT_NE(outcome->text.find("Paris"), std::string::npos) << outcome->text;
  EXPECT_EQ(outcome->reason, StopReason::kEndOfText);
  EXPECT_GT(outcome->decode_seconds, 0.0);
}

}  // namespace
}  // namespace qevict::test
