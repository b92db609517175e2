// The tiny models are the ground that parity tests stand on: libllama and our own checks accept
// every one of them.
#include "support/tiny_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <numeric>

#include "model/gguf_file.h"
#include "model/hyperparameters.h"
#include "model/validate_tensors.h"
#include "model/validate_tokenizer.h"
#include "support/llama_reference.h"

namespace qevict::test {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

float Deviation(std::span<const float> values) {
  const float mean = std::accumulate(values.begin(), values.end(), 0.0f) / float(values.size());
  float sum = 0.0f;
  for (float v : values) sum += (v - mean) * (v - mean);
  return std::sqrt(sum / float(values.size()));
}

void ExpectAccepted(const TinyModelConfig& config) {
  const TinyModelFile tiny(config);
  const auto file = GgufFile::Open(tiny.path());
  ASSERT_TRUE(file) << file.error().message;
  const auto shape = ReadHyperparameters(**file);
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_EQ(shape->head_dim, config.head_dim);
  EXPECT_EQ(shape->group(), config.group);
  const Status tensors = ValidateTensors(**file, *shape);
  EXPECT_TRUE(tensors) << tensors.error().message;
  const Status tokenizer = ValidateTokenizer(**file);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;

  auto reference = LlamaReference::Load(tiny.path(), {.context_tokens = 256});
  ASSERT_TRUE(reference) << reference.error().message;
  const std::vector<Token> tokens = RandomTokens(config, 64, /*seed=*/3);
  const auto logits = (*reference)->Decode(tokens, ReferenceRows::kAll);
  ASSERT_TRUE(logits) << logits.error().message;
  const size_t vocab = (*reference)->vocab_size();
  ASSERT_EQ(logits->size(), tokens.size() * vocab);
  const std::span<const float> last = std::span(*logits).last(vocab);
  EXPECT_GT(Deviation(last), 1.0f);
  EXPECT_TRUE(std::ranges::all_of(*logits, [](float v) { return std::isfinite(v); }));
  // One earlier token differs, inside gemma3's window: attention must carry that to the last
  // logits.
  std::vector<Token> other = tokens;
  other[40] = other[40] == tokens[0] ? tokens[1] : tokens[0];
  (*reference)->Clear();
  const auto changed = (*reference)->Decode(other);
  ASSERT_TRUE(changed) << changed.error().message;
  float largest = 0.0f;
  for (size_t i = 0; i < vocab; ++i) largest = std::max(largest, std::abs((*changed)[i] - last[i]));
  EXPECT_GT(largest, 0.05f);
}

class TinyFamiliesTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(TinyFamiliesTest, AreAcceptedByLibllamaAndGiveSpreadLogits) {
  for (const NamedTinyModel& model : TinyFamilies(GetParam())) {
    SCOPED_TRACE(model.name);
    ExpectAccepted(model.config);
  }
}

INSTANTIATE_TEST_SUITE_P(HeadDims, TinyFamiliesTest, ::testing::Values(64, 80, 96, 128, 256),
                         ::testing::PrintToStringParamName());

class TinyTypesTest : public ::testing::TestWithParam<ggml_type> {};

TEST_P(TinyTypesTest, AreAcceptedByLibllama) {
  TinyModelConfig config;
  config.type = GetParam();
  ExpectAccepted(config);
}

INSTANTIATE_TEST_SUITE_P(Types, TinyTypesTest,
                         ::testing::Values(GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16,
                                           GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0,
                                           GGML_TYPE_Q5_1, GGML_TYPE_Q8_0, GGML_TYPE_Q2_K,
                                           GGML_TYPE_Q3_K, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K,
                                           GGML_TYPE_Q6_K, GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ3_XXS,
                                           GGML_TYPE_IQ3_S, GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS,
                                           GGML_TYPE_TQ2_0, GGML_TYPE_MXFP4),
                         [](const auto& test) { return std::string(ggml_type_name(test.param)); });

TEST(TinyModelTest, TheSameConfigurationGivesTheSameBytesAndAnotherSeedDoesNot) {
  TinyModelConfig config;
  const TinyModelFile first(config), second(config);
  EXPECT_EQ(ReadAll(first.path()), ReadAll(second.path()));
  config.seed = 2;
  const TinyModelFile third(config);
  EXPECT_NE(ReadAll(first.path()), ReadAll(third.path()));
}

}  // namespace
}  // namespace qevict::test
