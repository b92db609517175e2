// What a sequence computes does not depend on its company, on how its prompt is cut into chunks, or
// on an interruption.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "core/aligned_buffer.h"
#include "engine/engine.h"
#include "support/llama_reference.h"
#include "support/logits.h"
#include "support/prefill.h"
#include "support/tiny_model.h"

namespace qevict::test {
namespace {

// Keys, values and the activations of f16 products are rounded to 2^-11. Another order of summation
// moves some of them to the neighbouring value, so logits of two ways to compute the same move by a
// few such roundings.
void ExpectSameLogits(std::span<const float> a, std::span<const float> b) {
  ASSERT_EQ(a.size(), b.size());
  float largest = 0.0f;
  for (float v : b) largest = std::max(largest, std::abs(v));
  EXPECT_LE(CompareLogits(a, b).largest, 8.0f * 0x1p-11f * largest);
}

class SequencesTest : public ::testing::TestWithParam<size_t> {
 protected:
  static TinyModelConfig Config() { return TinyFamilies(64)[GetParam()].config; }

  std::unique_ptr<Engine> Load(uint32_t chunk) {
    auto engine = Engine::Load({.model_path = tiny_.path(),
                                .threads = 2,
                                .prefill_chunk = chunk,
                                .products = Products::kGgml});
    if (!engine) ADD_FAILURE() << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }
  static std::unique_ptr<Sequence> New(Engine& engine) { return engine.NewSequence(1024).value(); }
  static std::vector<Token> Prompt(size_t count, uint64_t seed) {
    return RandomTokens(Config(), count, seed);
  }
  static std::vector<float> Alone(Engine& engine, std::span<const Token> tokens) {
    const auto sequence = New(engine);
    return Prefill(engine, *sequence, tokens);
  }

  const TinyModelFile tiny_{Config()};
};

TEST_P(SequencesTest, AModelWhoseWeightsFindNoMemoryIsRefused) {
  for (const Products products : {Products::kGgml, Products::kFloat32}) {
    uint32_t failures = 0;
    for (;; ++failures) {
      const FailingAllocation failing(failures);
      const auto engine =
          Engine::Load({.model_path = tiny_.path(), .threads = 1, .products = products});
      if (engine) break;
      ASSERT_EQ(engine.error().code, ErrorCode::kOutOfMemory) << engine.error().message;
      EXPECT_EQ(engine.error().message.find("drop --products f32") != std::string::npos,
                products == Products::kFloat32)
          << engine.error().message;
      ASSERT_LT(failures, 20u);
    }
    // No type of this model may have a layout of ggml's own; in f32 every one is a copy.
    EXPECT_GE(failures, products == Products::kFloat32 ? 1u : 0u);
  }
}

TEST_P(SequencesTest, InOneBatchTheyComputeWhatEachComputesAlone) {
  const auto engine = Load(512);
  const std::vector<Token> a = Prompt(70, 1), b = Prompt(9, 2), c = Prompt(300, 3);
  const auto sequence_a = New(*engine), sequence_b = New(*engine), sequence_c = New(*engine);
  std::vector<float> logits_a, logits_b, logits_c;
  // Different lengths and stages: a continues after 60 tokens, b starts, c decodes its last token.
  Prefill(*engine, *sequence_a, std::span(a).first(60));
  Prefill(*engine, *sequence_c, std::span(c).first(299));
  BatchItem batch[] = {
      {.sequence = sequence_a.get(), .tokens = std::span(a).subspan(60), .logits_out = &logits_a},
      {.sequence = sequence_b.get(),
       .tokens = b,
       .logits = LogitRows::kAll,
       .logits_out = &logits_b},
      {.sequence = sequence_c.get(), .tokens = std::span(c).subspan(299), .logits_out = &logits_c},
  };
  const Status status = engine->Run(batch, {});
  ASSERT_TRUE(status) << status.error().message;
  ExpectSameLogits(logits_a, Alone(*engine, a));
  ExpectSameLogits(logits_c, Alone(*engine, c));
  const size_t vocab = engine->hyperparameters().vocab;
  ASSERT_EQ(logits_b.size(), b.size() * vocab);
  for (size_t row = 0; row < b.size(); ++row) {
    SCOPED_TRACE(row);
    ExpectSameLogits(std::span(logits_b).subspan(row * vocab, vocab),
                     Alone(*engine, std::span(b).first(row + 1)));
  }
}

TEST_P(SequencesTest, TheSizeOfPrefillChunksDoesNotChangeLogits) {
  const std::vector<Token> prompt = Prompt(333, 4);
  const auto whole = Load(512);
  const std::vector<float> expected = Alone(*whole, prompt);
  for (uint32_t chunk : {1u, 7u, 64u, 332u}) {
    SCOPED_TRACE(chunk);
    const auto engine = Load(chunk);
    ExpectSameLogits(Alone(*engine, prompt), expected);
  }
}

TEST_P(SequencesTest, ACancelledPrefillLeavesWholeChunksAndCanGoOn) {
  const std::vector<Token> prompt = Prompt(300, 5);
  const auto engine = Load(64);
  const std::vector<float> expected = Alone(*engine, prompt);
  for (int calls_before : {0, 3, 20, 60}) {
    SCOPED_TRACE(calls_before);
    const auto sequence = New(*engine);
    std::atomic<int> calls = 0;
    const Status status =
        engine->Prefill(*sequence, prompt, nullptr, {}, [&] { return ++calls > calls_before; });
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
    const uint32_t done = sequence->size_tokens();
    EXPECT_EQ(done % 64, 0u);
    EXPECT_LT(done, prompt.size());
    ExpectSameLogits(Prefill(*engine, *sequence, std::span(prompt).subspan(done)), expected);
    EXPECT_TRUE(std::ranges::equal(sequence->tokens(), prompt));
  }
}

TEST_P(SequencesTest, ARefusedBatchChangesNoSequence) {
  const auto engine = Load(64);
  const std::vector<Token> prompt = Prompt(50, 6), good = Prompt(5, 7);
  const auto first = New(*engine), second = New(*engine);
  Prefill(*engine, *first, prompt);
  const Token bad[] = {Token(engine->hyperparameters().vocab)}, negative[] = {-1};
  const std::vector<Token> long_run = Prompt(65, 8);
  const auto refuse = [&](std::span<const Token> tokens, Sequence* sequence) {
    std::vector<float> logits;
    BatchItem batch[] = {{.sequence = first.get(), .tokens = good, .logits_out = &logits},
                         {.sequence = sequence, .tokens = tokens, .logits_out = &logits}};
    return engine->Run(batch, {});
  };
  EXPECT_EQ(refuse(bad, second.get()).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refuse(negative, second.get()).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refuse(long_run, second.get()).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refuse({}, second.get()).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refuse(good, first.get()).error().code, ErrorCode::kInvalidArgument);
  const auto full = engine->NewSequence(4).value();
  EXPECT_EQ(refuse(good, full.get()).error().code, ErrorCode::kContextFull);
  EXPECT_EQ(first->size_tokens(), 50u);
  EXPECT_EQ(second->size_tokens(), 0u);
  std::vector<Token> all = prompt;
  all.insert(all.end(), good.begin(), good.end());
  ExpectSameLogits(Prefill(*engine, *first, good), Alone(*engine, all));
}

TEST_P(SequencesTest, ATruncatedSequenceForgetsWhatWasCutOff) {
  const auto engine = Load(64);
  const std::vector<Token> prompt = Prompt(200, 9), other = Prompt(30, 10);
  const auto sequence = New(*engine);
  Prefill(*engine, *sequence, prompt);
  const Status status = sequence->Truncate(90);
  if (engine->hyperparameters().swa_window != 0) {
    ASSERT_FALSE(status);  // the ring has overwritten what token 90 would attend to
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(sequence->size_tokens(), 200u);
    return;
  }
  ASSERT_TRUE(status) << status.error().message;
  std::vector<Token> all(prompt.begin(), prompt.begin() + 90);
  all.insert(all.end(), other.begin(), other.end());
  ExpectSameLogits(Prefill(*engine, *sequence, other), Alone(*engine, all));
}

INSTANTIATE_TEST_SUITE_P(Tiny, SequencesTest, ::testing::Values(0, TinyFamilies(64).size() - 1),
                         [](const auto& test) { return TinyFamilies(64)[test.param].name; });

}  // namespace
}  // namespace qevict::test
