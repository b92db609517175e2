// The engine's logits are libllama's, for every family, head size and weight type, on tiny random
// models.
#include "support/parity.h"

#include <gguf.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/logits.h"
#include "support/tiny_model.h"

namespace qevict::test {
namespace {

void ExpectParity(const TinyModelConfig& config, std::initializer_list<uint32_t> prompts,
                  uint32_t decode_steps) {
  const TinyModelFile tiny(config);
  auto pair = ParityPair::Load({tiny.path(), tiny.path()}, config.context, ParityBound::kCosine);
  ASSERT_TRUE(pair) << pair.error().message;
  for (uint32_t length : prompts) {
    SCOPED_TRACE(testing::Message() << "prompt of " << length);
    const auto result = pair->Compare(RandomTokens(config, length, /*seed=*/length), decode_steps);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->failure, "");
    EXPECT_EQ(result->rows, decode_steps + 1);
    EXPECT_LE(result->ties, result->rows / 8);
  }
}

using FamilyAndHeadDim = std::tuple<size_t, uint32_t>;
class FamilyParityTest : public ::testing::TestWithParam<FamilyAndHeadDim> {};

TEST_P(FamilyParityTest, LogitsAreLibllamas) {
  const auto [family, head_dim] = GetParam();
  ExpectParity(TinyFamilies(head_dim)[family].config, {1, 7, 512, 2000}, /*decode_steps=*/64);
}

std::string FamilyTestName(const ::testing::TestParamInfo<FamilyAndHeadDim>& test) {
  const auto [family, head_dim] = test.param;
  return TinyFamilies(head_dim)[family].name + "_" + std::to_string(head_dim);
}

INSTANTIATE_TEST_SUITE_P(Tiny, FamilyParityTest,
                         ::testing::Combine(::testing::Range<size_t>(0, TinyFamilies(64).size()),
                                            ::testing::Values(64, 80, 96, 128, 256)),
                         FamilyTestName);

// ggml rounds the activations of quantized products to 8 bits. A rounding that falls the other way
// because a sum was ordered differently is a full step, so libllama's logits differ from themselves
// when only its attention changes (measured here: cosines down to 0.9994). The engine must be no
// further from libllama than a few times that.
class TypeParityTest : public ::testing::TestWithParam<ggml_type> {
 protected:
  static std::vector<float> Decode(const std::string& path, const ReferenceOptions& options,
                                   std::span<const Token> tokens) {
    return LlamaReference::Load(path, options).value()->Decode(tokens, ReferenceRows::kAll).value();
  }
};

TEST_P(TypeParityTest, LogitsAreAsCloseToLibllamasAsItsOwnAttentionsAreToEachOther) {
  constexpr uint32_t kContext = 256;
  TinyModelConfig config;
  config.type = GetParam();
  const TinyModelFile tiny(config);
  const std::vector<Token> tokens = RandomTokens(config, 200, /*seed=*/5);
  const std::vector<float> expected = Decode(tiny.path(), {.context_tokens = kContext}, tokens);
  const std::vector<float> variants[] = {
      Decode(tiny.path(), {.flash_attention = FlashAttention::kOn, .context_tokens = kContext},
             tokens),
      Decode(tiny.path(), {.kv_type = LlamaKvType::kF32, .context_tokens = kContext}, tokens)};

  const auto engine =
      Engine::Load({.model_path = tiny.path(), .threads = 2, .products = Products::kGgml}).value();
  const auto sequence = engine->NewSequence(kContext).value();
  std::vector<float> ours;
  BatchItem item{
      .sequence = sequence.get(), .tokens = tokens, .logits = LogitRows::kAll, .logits_out = &ours};
  ASSERT_TRUE(engine->Run({&item, 1}, {}));
  ASSERT_EQ(ours.size(), expected.size());
  const auto distance = [&](const std::vector<float>& logits) {  // mean over rows of 1 - cosine
    double sum = 0.0;
    for (size_t row = 0; row < tokens.size(); ++row) {
      const size_t at = row * config.vocab;
      sum += 1.0 - CompareLogits(std::span(logits).subspan(at, config.vocab),
                                 std::span(expected).subspan(at, config.vocab))
                       .cosine;
    }
    return sum / double(tokens.size());
  };
  const double spread = std::max(distance(variants[0]), distance(variants[1]));
  EXPECT_LT(spread, 2e-3);
  EXPECT_LE(distance(ours), 2.0 * spread + 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Tiny, TypeParityTest,
                         ::testing::Values(GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16,
                                           GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0,
                                           GGML_TYPE_Q5_1, GGML_TYPE_Q8_0, GGML_TYPE_Q2_K,
                                           GGML_TYPE_Q3_K, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K,
                                           GGML_TYPE_Q6_K, GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ3_XXS,
                                           GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS, GGML_TYPE_TQ2_0,
                                           GGML_TYPE_MXFP4),
                         [](const auto& test) { return std::string(ggml_type_name(test.param)); });

TEST(ShapeParityTest, ManyQueryHeadsForOneKvHeadAgree) {
  TinyModelConfig config;
  config.kv_heads = 1;
  config.group = 24;
  ExpectParity(config, {7, 300}, 8);
}

TEST(ShapeParityTest, OneQueryHeadForEachKvHeadAgrees) {
  TinyModelConfig config;
  config.kv_heads = 5;
  config.group = 1;
  ExpectParity(config, {7, 300}, 8);
}

TEST(ShapeParityTest, GemmaWithEveryLayerSlidingAgrees) {
  TinyModelConfig config = TinyFamilies(64).back().config;
  ASSERT_EQ(config.family, Family::kGemma3);
  config.layers = 3;  // the first global one would be the sixth
  ExpectParity(config, {1, 33, 600}, 40);
}

// What the comparison is worth: the engine on a file that differs in one number must not pass for
// libllama on the original.
struct Change {
  const char* name;
  size_t family;
  uint32_t prompt;
  void (*apply)(TinyModelConfig&);
};

size_t FamilyNamed(std::string_view name) {
  const std::vector<NamedTinyModel> models = TinyFamilies(64);
  return size_t(std::ranges::find(models, name, &NamedTinyModel::name) - models.begin());
}

class ParitySensitivityTest : public ::testing::TestWithParam<Change> {};

TEST_P(ParitySensitivityTest, AChangedModelIsNoticed) {
  const TinyModelConfig original = TinyFamilies(64)[GetParam().family].config;
  TinyModelConfig changed = original;
  GetParam().apply(changed);
  const TinyModelFile original_file(original), changed_file(changed);
  auto pair = ParityPair::Load({changed_file.path(), original_file.path()}, original.context,
                               ParityBound::kCosine);
  ASSERT_TRUE(pair) << pair.error().message;
  const auto result = pair->Compare(RandomTokens(original, GetParam().prompt, /*seed=*/1), 4);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_NE(result->failure, "");
}

INSTANTIATE_TEST_SUITE_P(
    Tiny, ParitySensitivityTest,
    ::testing::Values(Change{"SlidingWindowOneShorter", FamilyNamed("gemma3"), 300,
                             [](TinyModelConfig& c) { c.swa_window = 31; }},
                      Change{"NoFinalSoftcap", FamilyNamed("gemma3"), 7,
                             [](TinyModelConfig& c) { c.final_softcap = 0.0f; }},
                      Change{"RopeBase", FamilyNamed("llama"), 64,
                             [](TinyModelConfig& c) {
                               c.edit_metadata = [](gguf_context* m) {
                                 gguf_set_val_f32(m, "llama.rope.freq_base", 5.5e4f);
                               };
                             }},
                      Change{"NoFrequencyFactors", FamilyNamed("llama31"), 64,
                             [](TinyModelConfig& c) { c.rope = TinyRope::kPlain; }},
                      Change{"LinearForYarn", FamilyNamed("llama_yarn"), 64,
                             [](TinyModelConfig& c) { c.rope = TinyRope::kLinear; }},
                      Change{"YarnContext", FamilyNamed("llama_yarn"), 64,
                             [](TinyModelConfig& c) {
                               c.edit_metadata = [](gguf_context* m) {
                                 gguf_set_val_u32(m, "llama.rope.scaling.original_context_length",
                                                  4096);
                               };
                             }},
                      Change{"Epsilon", FamilyNamed("qwen3"), 7,
                             [](TinyModelConfig& c) {
                               c.edit_metadata = [](gguf_context* m) {
                                 gguf_set_val_f32(m, "qwen3.attention.layer_norm_rms_epsilon",
                                                  0.03f);
                               };
                             }}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace qevict::test
