// The default products on weights in blocks, where our own kernel multiplies: whole models of every
// type.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/isa.h"
#include "engine/engine.h"
#include "support/logits.h"
#include "support/tiny_model.h"

namespace qevict::test {
namespace {

constexpr uint32_t kBlockContext = 512;

class BlockProductsTest : public ::testing::TestWithParam<ggml_type> {
 protected:
  BlockProductsTest() {
    config_.type = GetParam();
    tiny_.emplace(config_);
  }
  std::unique_ptr<Engine> Load(Products products, uint32_t threads) const {
    return Engine::Load({.model_path = tiny_->path(), .threads = threads, .products = products})
        .value();
  }
  // All logits of the tokens, read one by one behind the first `prompt`.
  std::vector<float> Logits(Engine& engine, std::span<const Token> tokens, size_t prompt) const {
    const auto sequence = engine.NewSequence(kBlockContext).value();
    std::vector<float> all, logits;
    for (size_t done = 0; done < tokens.size();) {
      const size_t count = done == 0 ? prompt : 1;
      BatchItem item{.sequence = sequence.get(),
                     .tokens = tokens.subspan(done, count),
                     .logits = LogitRows::kAll,
                     .logits_out = &logits};
      EXPECT_TRUE(engine.Run({&item, 1}, {}));
      all.insert(all.end(), logits.begin(), logits.end());
      done += count;
    }
    return all;
  }
  TinyModelConfig config_;
  std::optional<TinyModelFile> tiny_;
};

TEST_P(BlockProductsTest, LogitsAreAsCloseToThoseOfF32AsGgmlsAre) {
  const std::vector<Token> tokens = RandomTokens(config_, 60, /*seed=*/5);
  const std::vector<float> exact = Logits(*Load(Products::kFloat32, 2), tokens, 40);
  const auto distance = [&](Products products) {  // mean over rows of 1 - cosine
    const std::vector<float> logits = Logits(*Load(products, 2), tokens, 40);
    double sum = 0.0;
    for (size_t at = 0; at < logits.size(); at += config_.vocab) {
      sum += 1.0 - CompareLogits(std::span(logits).subspan(at, config_.vocab),
                                 std::span(exact).subspan(at, config_.vocab))
                       .cosine;
    }
    return sum / double(tokens.size());
  };
  // Both round activations to 8 bits, in groups of 32; of K-quants, ggml in groups of 256.
  const double ours = distance(Products::kFastest), ggml = distance(Products::kGgml);
  EXPECT_GT(ggml, 1e-5);
  EXPECT_LE(ours, 1.5 * ggml);
}

TEST_P(BlockProductsTest, BitsDependNeitherOnThreadsNorOnTheBatch) {
  const std::vector<Token> tokens = RandomTokens(config_, 50, /*seed=*/6);
  const auto one = Load(Products::kFastest, 1);
  const std::vector<float> alone = Logits(*one, tokens, 30);
  EXPECT_EQ(Logits(*Load(Products::kFastest, 3), tokens, 30), alone);

  // Beside another sequence.
  const auto sequence = one->NewSequence(kBlockContext).value();
  const auto other = one->NewSequence(kBlockContext).value();
  std::vector<float> logits, others;
  BatchItem items[] = {{.sequence = other.get(),
                        .tokens = std::span(tokens).first(7),
                        .logits = LogitRows::kAll,
                        .logits_out = &others},
                       {.sequence = sequence.get(),
                        .tokens = std::span(tokens).first(30),
                        .logits = LogitRows::kAll,
                        .logits_out = &logits}};
  ASSERT_TRUE(one->Run(items, {}));
  EXPECT_TRUE(std::equal(logits.begin(), logits.end(), alone.begin()));
}

INSTANTIATE_TEST_SUITE_P(Tiny, BlockProductsTest,
                         ::testing::Values(GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1,
                                           GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K,
                                           GGML_TYPE_Q6_K),
                         [](const auto& test) { return std::string(ggml_type_name(test.param)); });

}  // namespace
}  // namespace qevict::test
