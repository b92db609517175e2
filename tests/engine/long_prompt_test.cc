// Prompts that pass through a model layer by layer, with weights that are unpacked for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "core/aligned_buffer.h"
#include "engine/engine.h"
#include "model/layer_products.h"
#include "support/llama_reference.h"
#include "support/logits.h"
#include "support/prefill.h"
#include "support/tiny_model.h"

namespace qevict::test {
namespace {

constexpr uint32_t kLongChunk = 64;
constexpr uint32_t kLongContext = 700;

class LongPromptTest : public ::testing::TestWithParam<size_t> {
 protected:
  static TinyModelConfig Config() { return TinyFamilies(64)[GetParam()].config; }
  void SetUp() override {
    if (LayerProducts::Create(Products::kFastest, 1) == nullptr)
      GTEST_SKIP() << "this build or CPU has no oneDNN products";
  }
  static EngineConfig With(Products products) {
    EngineConfig config;
    config.products = products;
    return config;
  }
  static EngineConfig OnThreads(uint32_t threads) {
    EngineConfig config;
    config.threads = threads;
    return config;
  }
  std::unique_ptr<Engine> Load(EngineConfig config) const {
    config.model_path = tiny_.path();
    config.prefill_chunk = kLongChunk;
    if (config.threads == 0) config.threads = 2;
    auto engine = Engine::Load(config);
    if (!engine) ADD_FAILURE() << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }
  static std::vector<Token> Prompt(size_t count) { return RandomTokens(Config(), count, 3); }
  static std::vector<float> Alone(Engine& engine, std::span<const Token> tokens) {
    const auto sequence = engine.NewSequence(kLongContext).value();
    return Prefill(engine, *sequence, tokens);
  }

  const TinyModelFile tiny_{Config()};
};

// Rounding of every product and of attention to 2^-9 in two or three layers of random weights.
void ExpectClose(std::span<const float> a, std::span<const float> b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_GT(CompareLogits(a, b).cosine, 0.999);
}

TEST_P(LongPromptTest, LogitsAreCloseToThoseOfGgmlsProducts) {
  const auto fast = Load(EngineConfig()), exact = Load(With(Products::kGgml));
  for (size_t tokens : {127, 128, 129, 300, 640}) {
    SCOPED_TRACE(tokens);
    ExpectClose(Alone(*fast, Prompt(tokens)), Alone(*exact, Prompt(tokens)));
  }
}

TEST_P(LongPromptTest, ProductsInF32AreGgmlsButForItsOwnRounding) {
  const auto f32 = Load(With(Products::kFloat32)), ggml = Load(With(Products::kGgml));
  const LogitDifference difference =
      CompareLogits(Alone(*f32, Prompt(300)), Alone(*ggml, Prompt(300)));
  EXPECT_GT(difference.cosine, 0.9999);
}

TEST_P(LongPromptTest, BitsDoNotDependOnThreads) {
  const auto one = Load(OnThreads(1)), three = Load(OnThreads(3));
  EXPECT_EQ(Alone(*one, Prompt(333)), Alone(*three, Prompt(333)));
}

TEST_P(LongPromptTest, APromptInPiecesContinuesTheSequence) {
  const auto engine = Load(EngineConfig());
  const std::vector<Token> prompt = Prompt(600);
  const auto sequence = engine->NewSequence(kLongContext).value();
  Prefill(*engine, *sequence, std::span(prompt).first(200));
  Prefill(*engine, *sequence, std::span(prompt).subspan(200, 50));
  ExpectClose(Prefill(*engine, *sequence, std::span(prompt).subspan(250)), Alone(*engine, prompt));
  EXPECT_TRUE(std::ranges::equal(sequence->tokens(), prompt));
}

TEST_P(LongPromptTest, ACancelledPieceLeavesWhatWasThere) {
  const auto engine = Load(EngineConfig());
  const std::vector<Token> prompt = Prompt(600);
  const auto sequence = engine->NewSequence(kLongContext).value();
  Prefill(*engine, *sequence, std::span(prompt).first(250));
  std::vector<float> logits;
  // Sliding-window layers take a chunk at a time, the others the whole rest.
  const uint32_t before = sequence->size_tokens();
  std::atomic<int> asked{0};
  const Status status = engine->Prefill(*sequence, std::span(prompt).subspan(250), &logits, {},
                                        [&asked] { return ++asked > 40; });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
  EXPECT_GE(sequence->size_tokens(), before);
  const uint32_t now = sequence->size_tokens();
  ExpectClose(Prefill(*engine, *sequence, std::span(prompt).subspan(now)), Alone(*engine, prompt));
}

TEST_P(LongPromptTest, MemoryThatRunsOutFailsTheBatchAndTheNextAttemptGoesOn) {
  EngineConfig config{.model_path = tiny_.path(), .threads = 2, .prefill_chunk = 256};
  const auto engine = Engine::Load(config).value();
  const std::vector<Token> prompt = Prompt(200);
  const auto sequence = engine->NewSequence(kLongContext).value();
  std::vector<float> logits;
  uint32_t failures = 0;
  for (;; ++failures) {
    const FailingAllocation failing(failures);
    BatchItem item{.sequence = sequence.get(),
                   .tokens = prompt,
                   .logits = LogitRows::kAll,
                   .logits_out = &logits};
    const Status status = engine->Run({&item, 1}, {});
    if (status) break;
    ASSERT_EQ(status.error().code, ErrorCode::kOutOfMemory) << status.error().message;
    ASSERT_EQ(sequence->size_tokens(), 0u);
    ASSERT_LT(failures, 100u);
  }
  EXPECT_GE(failures, 3u);  // hidden states, logits, unpacked weights
  const size_t vocab = engine->hyperparameters().vocab;
  ExpectClose(std::span(logits).last(vocab), Alone(*engine, prompt));
}

// All rows of a batch through unpacked weights: what perplexity is computed from.
TEST_P(LongPromptTest, ABatchGivesTheLogitsOfAllItsRows) {
  EngineConfig config{.model_path = tiny_.path(), .threads = 2, .prefill_chunk = 256};
  const auto fast = Engine::Load(config).value();
  config.products = Products::kGgml;
  const auto exact = Engine::Load(config).value();
  const std::vector<Token> prompt = Prompt(200);
  std::vector<std::vector<float>> all;
  for (Engine* engine : {fast.get(), exact.get()}) {
    const auto sequence = engine->NewSequence(kLongContext).value();
    BatchItem item{.sequence = sequence.get(),
                   .tokens = prompt,
                   .logits = LogitRows::kAll,
                   .logits_out = &all.emplace_back()};
    ASSERT_TRUE(engine->Run({&item, 1}, {}));
  }
  const size_t vocab = fast->hyperparameters().vocab;
  ASSERT_EQ(all[0].size(), 200 * vocab);
  for (size_t row = 0; row < 200; ++row) {
    SCOPED_TRACE(row);
    ExpectClose(std::span(all[0]).subspan(row * vocab, vocab),
                std::span(all[1]).subspan(row * vocab, vocab));
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, LongPromptTest, ::testing::Range<size_t>(0, TinyFamilies(64).size()),
                         [](const ::testing::TestParamInfo<size_t>& tested) {
                           return TinyFamilies(64)[tested.param].name;
                         });

}  // namespace
}  // namespace qevict::test
