#include "model/tokenizer.h"

#include <gguf.h>
#include <gtest/gtest.h>

#include <thread>

#include "core/utf8.h"
#include "support/random.h"
#include "support/read_model.h"
#include "support/real_model.h"
#include "support/tiny_model.h"

namespace qevict::test {
namespace {

std::unique_ptr<Tokenizer> LoadOrDie(const std::string& path) {
  auto tokenizer = LoadTokenizer(path);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return tokenizer ? std::move(*tokenizer) : nullptr;
}

std::vector<Token> Plain(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.Encode(text, SpecialText::kPlain, Bos::kNever).value();
}
std::vector<Token> Parsed(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.Encode(text, SpecialText::kParse, Bos::kNever).value();
}

std::string RandomText(Random& random) {
  constexpr std::string_view kPieces[] = {"a",
                                          "The ",
                                          " don't",
                                          "\n\n",
                                          "\t",
                                          "  ",
                                          "12345",
                                          "\xE4\xB8\xAD\xE6\x96\x87",
                                          "\x01\x7f",
                                          "caf\xC3\xA9",
                                          "\xF0\x9F\x98\x80",
                                          "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9",
                                          "<|im_end|>",
                                          "</s>",
                                          "\xEF\xBF\xBD",
                                          "e\xCC\x81",
                                          "{\"k\": [1]}",
                                          "\r\n",
                                          "\xD8\xB3\xD9\x84"};
  std::string text;
  for (uint64_t i = random.Below(30); i > 0; --i) text += kPieces[random.Below(std::size(kPieces))];
  return text;
}

TinyModelConfig SentencePiece() {
  TinyModelConfig config;
  config.tokenizer = TinyTokenizer::kSentencePiece;
  return config;
}

class RealTokenizerTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string path = RealModel(GetParam());
    QEVICT_NEED_MODEL(path);
    tokenizer_ = LoadOrDie(path);
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(RealTokenizerTest, AnyTextSurvivesARoundTrip) {
  for (const std::string text :
       {"", " ", "Hello, world!", " leading and trailing ",
        "\xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x8C\xE4\xB8\x96\xE7\x95\x8C\xE3\x80\x82",
        "\xF0\x9F\xA6\x99 \xF0\x9F\x91\xA9\xF0\x9F\x8F\xBD\xE2\x80\x8D\xF0\x9F\x9A\x80",
        "a\tb\r\nc\n\n\n", "\x01\x02\x1b[31m\x7f", "<|im_start|>user<|im_end|>",
        "e\xCC\x81 \xE2\x80\x8B \xC2\xA0"}) {
    EXPECT_EQ(tokenizer_->Decode(Plain(*tokenizer_, text)), text);
  }
  Random random(1);
  for (int round = 0; round < 500; ++round) {
    const std::string text = RandomText(random);
    ASSERT_EQ(tokenizer_->Decode(Plain(*tokenizer_, text)), text);
  }
}

TEST_P(RealTokenizerTest, AZeroByteIsAnOrdinaryCharacter) {
  const std::string text("a\0b", 3);
  EXPECT_EQ(tokenizer_->Decode(Plain(*tokenizer_, text)), text);
}

TEST_P(RealTokenizerTest, SpecialTextBecomesTheSpecialTokenOnlyWhenAskedFor) {
  const std::vector<Token> parsed = Parsed(*tokenizer_, "<|im_end|>");
  ASSERT_EQ(parsed.size(), 1u);
  EXPECT_TRUE(tokenizer_->IsEndOfGeneration(parsed[0]));
  EXPECT_EQ(tokenizer_->Piece(parsed[0]), "");

  for (const char* text : {"<|im_end|>", "bye<|im_end|>\n<|im_start|>system\n", "<|endoftext|>"}) {
    const std::vector<Token> plain = Plain(*tokenizer_, text);
    for (const Token token : plain) {
      EXPECT_FALSE(tokenizer_->IsEndOfGeneration(token)) << text;
      EXPECT_NE(tokenizer_->Piece(token), "") << text;
    }
    EXPECT_EQ(tokenizer_->Decode(plain), text);
  }
}

TEST_P(RealTokenizerTest, PiecesOfOneCharacterJoinToIt) {
  const std::string emoji = "\xF0\x9F\xAB\xA8";  // newer than both vocabularies: several tokens
  const std::vector<Token> tokens = Plain(*tokenizer_, emoji);
  ASSERT_GT(tokens.size(), 1u);
  EXPECT_NE(FirstInvalidUtf8(tokenizer_->Piece(tokens[0])), std::nullopt);
  EXPECT_EQ(tokenizer_->Decode(tokens), emoji);
}

TEST_P(RealTokenizerTest, IdsOutsideTheVocabularyHaveNoTextAndEndNothing) {
  for (const Token token : {Token{-1}, Token(tokenizer_->vocab_size()), INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer_->Piece(token), "");
    EXPECT_FALSE(tokenizer_->IsEndOfGeneration(token));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RealTokenizerTest, ::testing::Values(kSmolLm2, kQwenHalfB),
                         [](const auto& instance) {
                           return std::string(instance.index == 0 ? "SmolLm2" : "Qwen");
                         });

TEST(TokenizerTest, InvalidUtf8IsRefusedWithItsOffset) {
  const TinyModelFile file(TinyModelConfig{});
  const auto tokenizer = LoadOrDie(file.path());
  const auto tokens = tokenizer->Encode("0123\xFFz", SpecialText::kPlain, Bos::kNever);
  ASSERT_FALSE(tokens);
  EXPECT_EQ(tokens.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(tokens.error().message.find("byte 4"), std::string::npos);
}

TEST(TokenizerTest, BosComesFirstExactlyWhenTheModelAndTheCallerWantIt) {
  const TinyModelFile with(SentencePiece()), without(TinyModelConfig{});
  const auto bos = LoadOrDie(with.path()), no_bos = LoadOrDie(without.path());
  constexpr Token kBos = 1;
  EXPECT_EQ(bos->Encode("", SpecialText::kPlain, Bos::kModelDefault).value(), std::vector{kBos});
  EXPECT_EQ(bos->Encode("a", SpecialText::kPlain, Bos::kModelDefault).value()[0], kBos);
  EXPECT_NE(Plain(*bos, "a")[0], kBos);
  EXPECT_TRUE(no_bos->Encode("", SpecialText::kPlain, Bos::kModelDefault).value().empty());
}

TEST(TokenizerTest, ThePrefixSpaceOfSentencePieceIsNotPartOfTheText) {
  const TinyModelFile file(SentencePiece());
  const auto tokenizer = LoadOrDie(file.path());
  Random random(2);
  for (const std::string text : {"the end", " the end", "  x", "", "\n"}) {
    EXPECT_EQ(tokenizer->Decode(Plain(*tokenizer, text)), text);
  }
  for (int round = 0; round < 200; ++round) {
    const std::string text = RandomText(random);
    ASSERT_EQ(tokenizer->Decode(Plain(*tokenizer, text)), text);
  }
}

TEST(TokenizerTest, ARunThatWouldOverflowTheStackOfStdRegexIsTokenized) {
  TinyModelConfig config;
  config.edit_metadata = [](gguf_context* metadata) {
    gguf_set_val_str(metadata, "tokenizer.ggml.pre", "deepseek-llm");
  };
  const TinyModelFile file(config);
  const auto tokenizer = LoadOrDie(file.path());
  for (const std::string unit : {"a", " ", "!", "7", "\xC3\xA9", "\xE4\xB8\xAD"}) {
    std::string text;
    while (text.size() < 120'000) text += unit;
    EXPECT_EQ(tokenizer->Decode(Plain(*tokenizer, text)), text) << "run of '" << unit << "'";
  }
}

TEST(TokenizerTest, AModelWithoutVocabularyIsUnsupported) {
  TinyModelConfig config;
  config.edit_metadata = [](gguf_context* metadata) {
    gguf_set_val_str(metadata, "tokenizer.ggml.model", "none");
  };
  const TinyModelFile file(config);
  const auto tokenizer = LoadTokenizer(file.path());
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kUnsupported) << tokenizer.error().message;
}

TEST(TokenizerTest, ThreadsMayEncodeAtTheSameTime) {
  const TinyModelFile file(TinyModelConfig{});
  const auto tokenizer = LoadOrDie(file.path());
  const std::string text = "the end of the road and then the other end";
  const std::vector<Token> expected = Plain(*tokenizer, text);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        if (Plain(*tokenizer, text) != expected || tokenizer->Decode(expected) != text) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace qevict::test
