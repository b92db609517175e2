#include "model/hyperparameters.h"

#include <gguf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/tiny_model.h"

namespace qevict::test {
namespace {

using ::testing::HasSubstr;
using Edit = std::function<void(gguf_context*)>;

Result<Hyperparameters> Read(TinyModelConfig config, Edit edit = {}) {
  config.edit_metadata = std::move(edit);
  const TinyModelFile tiny(config);
  auto file = GgufFile::Open(tiny.path());
  if (!file) return tl::unexpected(file.error());
  return ReadHyperparameters(**file);
}

TinyModelConfig Gemma() {
  TinyModelConfig config;
  config.family = Family::kGemma3;
  config.layers = 13;
  return config;
}

TEST(HyperparametersTest, ALlamaFileGivesItsShape) {
  const auto h = Read({.layers = 3, .kv_heads = 2, .group = 4, .head_dim = 80});
  ASSERT_TRUE(h) << h.error().message;
  EXPECT_EQ(h->architecture, "llama");
  EXPECT_EQ(h->name, "tiny llama");
  EXPECT_EQ(h->layers, 3u);
  EXPECT_EQ(h->heads, 8u);
  EXPECT_EQ(h->kv_heads, 2u);
  EXPECT_EQ(h->head_dim, 80u);
  EXPECT_EQ(h->rope_dims, 80u);
  EXPECT_EQ(h->vocab, 512u);
  EXPECT_EQ(h->context_train, 4096u);
  EXPECT_EQ(h->rope_layout, RopeLayout::kInterleaved);
  EXPECT_EQ(h->activation, Activation::kSilu);
  EXPECT_FLOAT_EQ(h->attention_scale, 1.0f / std::sqrt(80.0f));
  EXPECT_EQ(h->rope_scaling.kind, RopeScaling::Kind::kNone);
  EXPECT_EQ(h->kv_shape().layers, 3u);
  EXPECT_EQ(h->kv_shape().layer_token_bytes(), 2u * 80 * 4);
}

TEST(HyperparametersTest, AbsentKeysTakeLibllamasDefaults) {
  const auto h = Read({.kv_heads = 4, .group = 1, .head_dim = 64}, [](gguf_context* m) {
    for (const char* key : {"llama.attention.head_count_kv", "llama.attention.key_length",
                            "llama.attention.value_length", "llama.rope.dimension_count",
                            "llama.rope.freq_base", "general.name"}) {
      gguf_remove_key(m, key);
    }
  });
  ASSERT_TRUE(h) << h.error().message;
  EXPECT_EQ(h->kv_heads, 4u);
  EXPECT_EQ(h->head_dim, 64u);
  EXPECT_EQ(h->rope_dims, 64u);
  EXPECT_FLOAT_EQ(h->rope_base, 10000.0f);
  EXPECT_EQ(h->rope_scaling.original_context, h->context_train);
  EXPECT_EQ(h->name, "");
}

TEST(HyperparametersTest, HeadCountsPerLayerAreAcceptedWhenTheyAreEqual) {
  const uint32_t same[] = {2, 2}, varying[] = {2, 1};
  EXPECT_TRUE(Read({.layers = 2}, [&](gguf_context* m) {
    gguf_set_arr_data(m, "llama.attention.head_count_kv", GGUF_TYPE_UINT32, same, 2);
  }));
  const auto h = Read({.layers = 2}, [&](gguf_context* m) {
    gguf_set_arr_data(m, "llama.attention.head_count_kv", GGUF_TYPE_UINT32, varying, 2);
  });
  ASSERT_FALSE(h);
  EXPECT_EQ(h.error().code, ErrorCode::kUnsupported);
}

TEST(HyperparametersTest, AFactorAloneScalesLinearlyAndOneOfZeroDoesNot) {
  const auto linear =
      Read({}, [](gguf_context* m) { gguf_set_val_f32(m, "llama.rope.scaling.factor", 8.0f); });
  ASSERT_TRUE(linear);
  EXPECT_EQ(linear->rope_scaling.kind, RopeScaling::Kind::kLinear);
  EXPECT_FLOAT_EQ(linear->rope_scaling.factor, 8.0f);
  const auto old_name =
      Read({}, [](gguf_context* m) { gguf_set_val_f32(m, "llama.rope.scale_linear", 2.0f); });
  ASSERT_TRUE(old_name);
  EXPECT_FLOAT_EQ(old_name->rope_scaling.factor, 2.0f);
  const auto zero =
      Read({}, [](gguf_context* m) { gguf_set_val_f32(m, "llama.rope.scaling.factor", 0.0f); });
  ASSERT_TRUE(zero);
  EXPECT_EQ(zero->rope_scaling.kind, RopeScaling::Kind::kNone);
}

TEST(HyperparametersTest, YarnAndNoneAreReadFromTheFile) {
  const auto yarn = Read({.rope = TinyRope::kYarn, .context = 4096});
  ASSERT_TRUE(yarn);
  EXPECT_EQ(yarn->rope_scaling.kind, RopeScaling::Kind::kYarn);
  EXPECT_FLOAT_EQ(yarn->rope_scaling.factor, 4.0f);
  EXPECT_EQ(yarn->rope_scaling.original_context, 1024u);
  const auto none = Read({}, [](gguf_context* m) {
    gguf_set_val_str(m, "llama.rope.scaling.type", "none");
    gguf_set_val_f32(m, "llama.rope.scaling.factor", 8.0f);
  });
  ASSERT_TRUE(none);
  EXPECT_FLOAT_EQ(none->rope_scaling.factor, 1.0f);
}

TEST(HyperparametersTest, GemmaHasEverySixthLayerGlobal) {
  const auto h = Read(Gemma());
  ASSERT_TRUE(h) << h.error().message;
  EXPECT_EQ(h->swa_window, 32u);
  for (uint32_t l = 0; l < 13; ++l) EXPECT_EQ(h->is_swa(l), l != 5 && l != 11) << l;
  EXPECT_FLOAT_EQ(h->rope_base, 1e6f);
  EXPECT_FLOAT_EQ(h->rope_base_swa, 10000.0f);
  EXPECT_FLOAT_EQ(h->embedding_scale, 16.0f);
  EXPECT_EQ(h->activation, Activation::kGelu);
  EXPECT_EQ(h->rope_layout, RopeLayout::kHalves);
}

TEST(HyperparametersTest, GemmasPatternMayBeAPeriodOrOneValuePerLayer) {
  const auto period = Read(Gemma(), [](gguf_context* m) {
    gguf_set_val_u32(m, "gemma3.attention.sliding_window_pattern", 2);
  });
  ASSERT_TRUE(period);
  for (uint32_t l = 0; l < 13; ++l) EXPECT_EQ(period->is_swa(l), l % 2 == 0) << l;
  int8_t pattern[13] = {0, 1};
  const auto listed = Read(Gemma(), [&](gguf_context* m) {
    gguf_set_arr_data(m, "gemma3.attention.sliding_window_pattern", GGUF_TYPE_BOOL, pattern, 13);
  });
  ASSERT_TRUE(listed);
  for (uint32_t l = 0; l < 13; ++l) EXPECT_EQ(listed->is_swa(l), l == 1) << l;
  EXPECT_FALSE(Read(Gemma(), [&](gguf_context* m) {
    gguf_set_arr_data(m, "gemma3.attention.sliding_window_pattern", GGUF_TYPE_BOOL, pattern, 12);
  }));
}

TEST(HyperparametersTest, GemmaWithoutSlidingLayersHasNoWindow) {
  const auto h = Read(Gemma(), [](gguf_context* m) {
    gguf_set_val_u32(m, "gemma3.attention.sliding_window_pattern", 1);
  });
  ASSERT_TRUE(h);
  EXPECT_EQ(h->swa_window, 0u);
  EXPECT_FALSE(h->is_swa(0));
}

TEST(HyperparametersTest, AnUnknownArchitectureIsRefusedByName) {
  const auto h =
      Read({}, [](gguf_context* m) { gguf_set_val_str(m, "general.architecture", "mamba"); });
  ASSERT_FALSE(h);
  EXPECT_EQ(h.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(h.error().message, HasSubstr("architecture 'mamba'"));
  EXPECT_THAT(h.error().message, HasSubstr("supported are llama, qwen2, qwen3, gemma3"));
}

struct Refusal {
  const char* name;
  ErrorCode code;
  const char* says;
  Edit edit;
};

class RefusedHyperparametersTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedHyperparametersTest, WithTheReason) {
  const auto h = Read({}, GetParam().edit);
  ASSERT_FALSE(h);
  EXPECT_EQ(h.error().code, GetParam().code) << h.error().message;
  EXPECT_THAT(h.error().message, HasSubstr(GetParam().says));
}

Edit U32(const char* key, uint32_t value) {
  return [=](gguf_context* m) { gguf_set_val_u32(m, key, value); };
}
Edit F32(const char* key, float value) {
  return [=](gguf_context* m) { gguf_set_val_f32(m, key, value); };
}
Edit Text(const char* key, const char* value) {
  return [=](gguf_context* m) { gguf_set_val_str(m, key, value); };
}
Edit Remove(const char* key) {
  return [=](gguf_context* m) { gguf_remove_key(m, key); };
}
constexpr ErrorCode kBad = ErrorCode::kBadFile, kNo = ErrorCode::kUnsupported;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

INSTANTIATE_TEST_SUITE_P(
    Files, RefusedHyperparametersTest,
    ::testing::
        Values(
            Refusal{"NoArchitecture", kBad, "architecture", Remove("general.architecture")},
            Refusal{"NoLayerCount", kBad, "llama.block_count' is missing",
                    Remove("llama.block_count")},
            Refusal{"NoLayers", kBad, "llama.block_count", U32("llama.block_count", 0)},
            Refusal{"ManyLayers", kBad, "llama.block_count", U32("llama.block_count", 513)},
            Refusal{"NoContext", kBad, "llama.context_length", U32("llama.context_length", 0)},
            Refusal{"HugeContext", kBad, "llama.context_length",
                    U32("llama.context_length", 1u << 31)},
            Refusal{"HugeEmbedding", kBad, "llama.embedding_length",
                    U32("llama.embedding_length", ~0u)},
            Refusal{"NoHeads", kBad, "head_count", U32("llama.attention.head_count", 0)},
            Refusal{"NoKvHeads", kBad, "head_count_kv", U32("llama.attention.head_count_kv", 0)},
            Refusal{"UnevenGroups", kBad, "not a multiple",
                    U32("llama.attention.head_count_kv", 3)},
            Refusal{"HugeGroups", kNo, "query heads",
                    [](gguf_context* m) {
                      gguf_set_val_u32(m, "llama.attention.head_count", 4096);
                      gguf_set_val_u32(m, "llama.attention.head_count_kv", 1);
                    }},
            Refusal{"OtherValueLength", kNo, "values of 32",
                    U32("llama.attention.value_length", 32)},
            Refusal{"HugeHeads", kNo, "heads of 512",
                    [](gguf_context* m) {
                      gguf_set_val_u32(m, "llama.attention.key_length", 512);
                      gguf_set_val_u32(m, "llama.attention.value_length", 512);
                    }},
            Refusal{"OddHeads", kNo, "heads of 72",
                    [](gguf_context* m) {
                      gguf_set_val_u32(m, "llama.attention.key_length", 72);
                      gguf_set_val_u32(m, "llama.attention.value_length", 72);
                    }},
            Refusal{"PartialRope", kNo, "RoPE over 32", U32("llama.rope.dimension_count", 32)},
            Refusal{"LongRope", kNo, "longrope", Text("llama.rope.scaling.type", "longrope")},
            Refusal{"UnknownScaling", kNo, "magic", Text("llama.rope.scaling.type", "magic")},
            Refusal{"NegativeFactor", kBad, "factor", F32("llama.rope.scaling.factor", -1.0f)},
            Refusal{"NanBase", kBad, "freq_base", F32("llama.rope.freq_base", kNan)},
            Refusal{"NanEpsilon", kBad, "epsilon",
                    F32("llama.attention.layer_norm_rms_epsilon", kNan)},
            Refusal{"Experts", kNo, "mixture of experts", U32("llama.expert_count", 8)},
            Refusal{"ExpertsUsed", kNo, "mixture of experts", U32("llama.expert_used_count", 2)},
            Refusal{"Prediction", kNo, "multi-token", U32("llama.nextn_predict_layers", 1)},
            Refusal{"Alibi", kNo, "ALiBi", F32("llama.attention.max_alibi_bias", 8.0f)},
            Refusal{"Clamp", kNo, "clamped", F32("llama.attention.clamp_kqv", 8.0f)},
            Refusal{"ScoreSoftcap", kNo, "soft-capped", F32("llama.attn_logit_softcapping", 50.0f)},
            Refusal{"BothDirections", kNo, "both directions",
                    [](gguf_context* m) { gguf_set_val_bool(m, "llama.attention.causal", false); }},
            Refusal{"Split", kNo, "one of 3 parts",
                    [](gguf_context* m) { gguf_set_val_u16(m, "split.count", 3); }},
            Refusal{"NoTokens", kBad, "no tokenizer", Remove("tokenizer.ggml.tokens")},
            Refusal{"FewTokens", kBad, "2 tokens but its embedding has 512 rows",
                    [](gguf_context* m) {
                      const char* tokens[] = {"a", "b"};
                      gguf_set_arr_str(m, "tokenizer.ggml.tokens", tokens, 2);
                    }},
            Refusal{"TextForNumber", kBad, "block_count", Text("llama.block_count", "two")}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace qevict::test
