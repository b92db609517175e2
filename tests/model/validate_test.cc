// Tensors and vocabularies that do not fit the model are refused by name, before libllama can
// assert on them.
#include <gguf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/hyperparameters.h"
#include "model/validate_tensors.h"
#include "model/validate_tokenizer.h"
#include "support/tiny_model.h"

namespace qevict::test {
namespace {

using ::testing::HasSubstr;

Status CheckTensors(TinyModelConfig config) {
  const TinyModelFile tiny(config);
  auto file = GgufFile::Open(tiny.path());
  if (!file) return file.error();
  const auto shape = ReadHyperparameters(**file);
  if (!shape) return shape.error();
  return ValidateTensors(**file, *shape);
}

Status CheckWith(std::function<void(std::vector<TinyTensor>&)> edit) {
  TinyModelConfig config;
  config.edit_tensors = std::move(edit);
  return CheckTensors(config);
}

TinyTensor& Find(std::vector<TinyTensor>& tensors, std::string_view name) {
  for (TinyTensor& tensor : tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return tensors[0];
}

TEST(ValidateTensorsTest, EveryRequiredTensorIsMissedByName) {
  for (const NamedTinyModel& model : TinyFamilies(64)) {
    std::vector<std::string> names;
    TinyModelConfig config = model.config;
    config.edit_tensors = [&](std::vector<TinyTensor>& tensors) {
      for (const TinyTensor& tensor : tensors) names.push_back(tensor.name);
    };
    ASSERT_TRUE(CheckTensors(config)) << model.name;
    for (const std::string& name : names) {
      const bool optional =
          name == "output.weight" || name == "rope_freqs.weight" || name.ends_with(".bias");
      if (optional || name.starts_with("blk.0") || name == "token_embd.weight")
        continue;  // the last layer stands for all
      config.edit_tensors = [&](std::vector<TinyTensor>& tensors) {
        std::erase_if(tensors, [&](const TinyTensor& tensor) { return tensor.name == name; });
      };
      const Status status = CheckTensors(config);
      ASSERT_FALSE(status) << model.name << " without " << name;
      EXPECT_EQ(status.error().code, ErrorCode::kBadFile);
      EXPECT_THAT(status.error().message, HasSubstr("'" + name + "' is missing"));
    }
  }
}

TEST(ValidateTensorsTest, AWrongShapeIsNamedWithTheRightOne) {
  const Status status =
      CheckWith([](auto& tensors) { Find(tensors, "blk.1.attn_k.weight").outputs = 64; });
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message,
              HasSubstr("'blk.1.attn_k.weight' has shape [256, 64, 1, 1] instead of [256, 128]"));
}

TEST(ValidateTensorsTest, AnOptionalTensorOfTheWrongShapeIsRefusedToo) {
  TinyModelConfig config;
  config.rope = TinyRope::kFrequencyFactors;
  config.edit_tensors = [](auto& tensors) { Find(tensors, "rope_freqs.weight").inputs = 16; };
  EXPECT_FALSE(CheckTensors(config));
}

TEST(ValidateTensorsTest, TypesThatCannotBeComputedWithAreRefused) {
  EXPECT_THAT(CheckWith([](auto& t) { Find(t, "output_norm.weight").type = GGML_TYPE_F16; })
                  .error()
                  .message,
              HasSubstr("stores tensor 'output_norm.weight' as f16"));
  const auto integers = [](auto& t) { t.push_back({"blk.0.attn_q.bias", 256, 1, GGML_TYPE_F16}); };
  EXPECT_EQ(CheckWith(integers).error().code, ErrorCode::kUnsupported);
}

TEST(ValidateTensorsTest, TensorsThatWouldChangeTheResultAreRefused) {
  for (const char* name :
       {"blk.0.attn_sinks.weight", "blk.0.attn_q.scale", "blk.0.ffn_gate_exps.weight",
        "blk.2.attn_q.weight", "blk.0.attn_q_norm.weight", "output.bias"}) {
    const Status status = CheckWith([&](auto& t) { t.push_back({name, 32, 1}); });
    ASSERT_FALSE(status) << name;
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(status.error().message, HasSubstr(name));
  }
}

TEST(ValidateTensorsTest, HeadsOfRerankersAreIgnored) {
  EXPECT_TRUE(CheckWith([&](auto& t) { t.push_back({"cls.output.weight", 256, 2}); }));
}

Status CheckTokenizer(TinyTokenizer kind, std::function<void(gguf_context*)> edit) {
  TinyModelConfig config;
  config.tokenizer = kind;
  config.edit_metadata = std::move(edit);
  const TinyModelFile tiny(config);
  auto file = GgufFile::Open(tiny.path());
  if (!file) return file.error();
  return ValidateTokenizer(**file);
}

// The tokens of a tiny tokenizer, for a test that changes a few.
std::vector<std::string> Tokens(gguf_context* metadata) {
  const int64_t key = gguf_find_key(metadata, "tokenizer.ggml.tokens");
  std::vector<std::string> tokens(gguf_get_arr_n(metadata, key));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = gguf_get_arr_str(metadata, key, i);
  return tokens;
}
void SetStrings(gguf_context* metadata, const char* key, const std::vector<std::string>& strings) {
  std::vector<const char*> pointers;
  for (const std::string& s : strings) pointers.push_back(s.c_str());
  gguf_set_arr_str(metadata, key, pointers.data(), pointers.size());
}
std::function<void(gguf_context*)> SetToken(size_t id, std::string text) {
  return [=](gguf_context* m) {
    std::vector<std::string> tokens = Tokens(m);
    tokens[id] = text;
    SetStrings(m, "tokenizer.ggml.tokens", tokens);
  };
}

struct BadTokenizer {
  const char* name;
  TinyTokenizer kind;
  const char* says;
  std::function<void(gguf_context*)> edit;
};

class RefusedTokenizerTest : public ::testing::TestWithParam<BadTokenizer> {};

TEST_P(RefusedTokenizerTest, WithTheReason) {
  const Status status = CheckTokenizer(GetParam().kind, GetParam().edit);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr(GetParam().says));
}

constexpr TinyTokenizer kBpe = TinyTokenizer::kByteBpe, kSpm = TinyTokenizer::kSentencePiece;

INSTANTIATE_TEST_SUITE_P(
    Files, RefusedTokenizerTest,
    ::testing::Values(
        BadTokenizer{"NoModel", kBpe, "model' is missing",
                     [](gguf_context* m) { gguf_remove_key(m, "tokenizer.ggml.model"); }},
        BadTokenizer{"OtherModel", kBpe, "tokenizer 'bert'",
                     [](gguf_context* m) { gguf_set_val_str(m, "tokenizer.ggml.model", "bert"); }},
        BadTokenizer{"NumbersForTokens", kBpe, "tokenizer.ggml.tokens",
                     [](gguf_context* m) {
                       const int32_t values[] = {1, 2};
                       gguf_set_arr_data(m, "tokenizer.ggml.tokens", GGUF_TYPE_INT32, values, 2);
                     }},
        BadTokenizer{"SameTokenTwice", kBpe, "token 66 ('A') occurs twice", SetToken(66, "A")},
        BadTokenizer{"EmptyTokenWithATakenName", kBpe, "occurs twice",
                     [](gguf_context* m) {
                       std::vector<std::string> tokens = Tokens(m);
                       tokens[300] = "";
                       tokens[10] = "[EMPTY_300]";
                       SetStrings(m, "tokenizer.ggml.tokens", tokens);
                     }},
        BadTokenizer{"FewTypes", kBpe, "token_type",
                     [](gguf_context* m) {
                       const int32_t values[] = {1, 2};
                       gguf_set_arr_data(m, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, values,
                                         2);
                     }},
        BadTokenizer{"FewScores", kSpm, "scores",
                     [](gguf_context* m) {
                       const float values[] = {1, 2};
                       gguf_set_arr_data(m, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, values, 2);
                     }},
        BadTokenizer{
            "EndOutside", kBpe, "eos_token_id' is 512",
            [](gguf_context* m) { gguf_set_val_u32(m, "tokenizer.ggml.eos_token_id", 512); }},
        BadTokenizer{"NoMerges", kBpe, "merges' is missing",
                     [](gguf_context* m) { gguf_remove_key(m, "tokenizer.ggml.merges"); }},
        BadTokenizer{"MergeOfOne", kBpe, "merge 0 ('th')",
                     [](gguf_context* m) { SetStrings(m, "tokenizer.ggml.merges", {"th"}); }},
        BadTokenizer{"MergeWithNothing", kBpe, "merge 0 ('th ')",
                     [](gguf_context* m) { SetStrings(m, "tokenizer.ggml.merges", {"th "}); }},
        BadTokenizer{"ByteMissing", kSpm, "byte 0x41", SetToken(3 + 0x41, "no byte")},
        BadTokenizer{"ByteNamedByANegativeNumber", kSpm, "byte 0xFB", SetToken(3 + 0xfb, "<0x-5>")},
        BadTokenizer{"TokenThatGrows", kBpe, "token 300 is not byte-level",
                     SetToken(300, std::string(100000, '\x01'))}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(ValidateTokenizerTest, BothTinyTokenizersPass) {
  for (TinyTokenizer kind : {kBpe, kSpm}) {
    const Status status = CheckTokenizer(kind, {});
    EXPECT_TRUE(status) << status.error().message;
  }
}

}  // namespace
}  // namespace qevict::test
