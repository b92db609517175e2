#include "support/tiny_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "core/check.h"
#include "support/ggml_free.h"
#include "support/random.h"
#include "support/tiny_tokenizer.h"

namespace qevict::test {
namespace {

const char* Architecture(Family family) {
  switch (family) {
    case Family::kLlama:
      return "llama";
    case Family::kQwen2:
      return "qwen2";
    case Family::kQwen3:
      return "qwen3";
    case Family::kGemma3:
      return "gemma3";
  }
  return "";
}

void SetMetadata(const TinyModelConfig& c, gguf_context* metadata) {
  const std::string architecture = Architecture(c.family);
  const auto u32 = [&](const char* key, uint32_t value) {
    gguf_set_val_u32(metadata, (architecture + "." + key).c_str(), value);
  };
  const auto f32 = [&](const char* key, float value) {
    gguf_set_val_f32(metadata, (architecture + "." + key).c_str(), value);
  };
  gguf_set_val_str(metadata, "general.architecture", architecture.c_str());
  gguf_set_val_str(metadata, "general.name", ("tiny " + architecture).c_str());
  u32("block_count", c.layers);
  u32("context_length", c.context);
  u32("embedding_length", c.embedding_length());
  u32("feed_forward_length", c.feed_forward);
  u32("attention.head_count", c.heads());
  u32("attention.head_count_kv", c.kv_heads);
  u32("attention.key_length", c.head_dim);
  u32("attention.value_length", c.head_dim);
  u32("rope.dimension_count", c.head_dim);
  f32("attention.layer_norm_rms_epsilon", 1e-6f);
  f32("rope.freq_base", c.family == Family::kGemma3 ? 1e6f : 5e4f);
  if (c.rope == TinyRope::kLinear || c.rope == TinyRope::kYarn) {
    const std::string key = architecture + ".rope.scaling.type";
    gguf_set_val_str(metadata, key.c_str(), c.rope == TinyRope::kLinear ? "linear" : "yarn");
    f32("rope.scaling.factor", 4.0f);
    u32("rope.scaling.original_context_length", c.context / 4);
  }
  if (c.family == Family::kGemma3) {
    u32("attention.sliding_window", c.swa_window);
    if (c.final_softcap != 0.0f) f32("final_logit_softcapping", c.final_softcap);
  }
  SetTinyTokenizer(metadata, c.tokenizer, c.vocab);
}

// Appends tensors with the deviations that keep activations near 1 and attention scores near 2.
class TensorList {
 public:
  explicit TensorList(ggml_type matrix_type) : matrix_type_(matrix_type) {}

  void Matrix(std::string name, int64_t inputs, int64_t outputs, float gain) {
    ggml_type type = matrix_type_;
    for (ggml_type fallback : {GGML_TYPE_Q8_0, GGML_TYPE_F16}) {
      if (inputs % ggml_blck_size(type) != 0) type = fallback;
    }
    tensors_.push_back(
        {std::move(name), inputs, outputs, type, 0.0f, gain / std::sqrt(float(inputs))});
  }
  void Norm(std::string name, int64_t size, float mean = 1.0f) {
    tensors_.push_back({std::move(name), size, 1, GGML_TYPE_F32, mean, 0.1f});
  }
  void Bias(std::string name, int64_t size, float deviation) {
    tensors_.push_back({std::move(name), size, 1, GGML_TYPE_F32, 0.0f, deviation});
  }
  std::vector<TinyTensor> Take() { return std::move(tensors_); }

 private:
  ggml_type matrix_type_;
  std::vector<TinyTensor> tensors_;
};

void AddLayer(const TinyModelConfig& c, const std::string& block, TensorList& list) {
  const int64_t embedding = c.embedding_length(), q = int64_t{c.heads()} * c.head_dim,
                kv = int64_t{c.kv_heads} * c.head_dim;
  const bool all_biases = c.bias == TinyBias::kEverywhere;
  list.Norm(block + "attn_norm.weight", embedding);
  list.Matrix(block + "attn_q.weight", embedding, q, 1.5f);
  list.Matrix(block + "attn_k.weight", embedding, kv, 1.5f);
  list.Matrix(block + "attn_v.weight", embedding, kv, 1.0f);
  if (c.family == Family::kQwen2 || all_biases) {
    list.Bias(block + "attn_q.bias", q, 0.5f);
    list.Bias(block + "attn_k.bias", kv, 2.0f);  // large, as in Qwen 2.5
    list.Bias(block + "attn_v.bias", kv, 0.5f);
  }
  if (c.family == Family::kQwen3 || c.family == Family::kGemma3) {
    list.Norm(block + "attn_q_norm.weight", c.head_dim, 1.4f);
    list.Norm(block + "attn_k_norm.weight", c.head_dim, 1.4f);
  }
  list.Matrix(block + "attn_output.weight", q, embedding, 1.5f);
  if (c.family == Family::kGemma3) list.Norm(block + "post_attention_norm.weight", embedding);
  list.Norm(block + "ffn_norm.weight", embedding);
  list.Matrix(block + "ffn_gate.weight", embedding, c.feed_forward, 1.5f);
  list.Matrix(block + "ffn_up.weight", embedding, c.feed_forward, 1.0f);
  list.Matrix(block + "ffn_down.weight", c.feed_forward, embedding, 1.0f);
  if (c.family == Family::kGemma3) list.Norm(block + "post_ffw_norm.weight", embedding);
  if (all_biases) {
    list.Bias(block + "attn_output.bias", embedding, 0.3f);
    list.Bias(block + "ffn_gate.bias", c.feed_forward, 0.3f);
    list.Bias(block + "ffn_up.bias", c.feed_forward, 0.3f);
    list.Bias(block + "ffn_down.bias", embedding, 0.3f);
  }
}

std::vector<TinyTensor> Tensors(const TinyModelConfig& c) {
  const int64_t embedding = c.embedding_length();
  TensorList list(c.type);
  list.Matrix("token_embd.weight", embedding, c.vocab, 3.0f);
  list.Norm("output_norm.weight", embedding);
  if (c.output == TinyOutput::kOwn) list.Matrix("output.weight", embedding, c.vocab, 3.0f);
  for (uint32_t l = 0; l < c.layers; ++l) AddLayer(c, fmt::format("blk.{}.", l), list);
  std::vector<TinyTensor> tensors = list.Take();
  if (c.rope == TinyRope::kFrequencyFactors) {
    tensors.push_back({"rope_freqs.weight", c.head_dim / 2, 1, GGML_TYPE_F32, 4.0f, 1.0f});
  }
  return tensors;
}

std::vector<uint8_t> RandomContents(const TinyTensor& tensor, Random& random) {
  std::vector<float> values(size_t(tensor.inputs * tensor.outputs));
  for (float& value : values) value = tensor.mean + tensor.deviation * random.Normal();
  std::vector<uint8_t> bytes(ggml_row_size(tensor.type, tensor.inputs) * size_t(tensor.outputs));
  const std::vector<float> even_importance(
      ggml_quantize_requires_imatrix(tensor.type) ? size_t(tensor.inputs) : 0, 1.0f);
  ggml_quantize_chunk(tensor.type, values.data(), bytes.data(), 0, tensor.outputs, tensor.inputs,
                      even_importance.empty() ? nullptr : even_importance.data());
  return bytes;
}

}  // namespace

Status WriteTinyModel(const TinyModelConfig& config, const std::string& path) {
  const std::unique_ptr<gguf_context, GgmlFree> metadata(gguf_init_empty());
  SetMetadata(config, metadata.get());
  if (config.edit_metadata) config.edit_metadata(metadata.get());
  std::vector<TinyTensor> tensors = Tensors(config);
  if (config.edit_tensors) config.edit_tensors(tensors);

  const std::unique_ptr<ggml_context, GgmlFree> context(
      ggml_init({(tensors.size() + 1) * ggml_tensor_overhead(), nullptr, /*no_alloc=*/true}));
  Random random(config.seed);
  std::vector<std::vector<uint8_t>> contents;
  for (const TinyTensor& tensor : tensors) {
    ggml_tensor* t =
        tensor.outputs == 1
            ? ggml_new_tensor_1d(context.get(), tensor.type, tensor.inputs)
            : ggml_new_tensor_2d(context.get(), tensor.type, tensor.inputs, tensor.outputs);
    ggml_set_name(t, tensor.name.c_str());
    t->data = contents.emplace_back(RandomContents(tensor, random)).data();
    gguf_add_tensor(metadata.get(), t);
  }
  if (!gguf_write_to_file(metadata.get(), path.c_str(), /*only_meta=*/false)) {
    return Fail(ErrorCode::kIo, fmt::format("cannot write '{}'", path));
  }
  return {};
}

std::vector<NamedTinyModel> TinyFamilies(uint32_t head_dim) {
  TinyModelConfig base;
  base.head_dim = head_dim;
  std::vector<NamedTinyModel> models;
  const auto add = [&](const char* name) -> TinyModelConfig& {
    return models.emplace_back(NamedTinyModel{name, base}).config;
  };
  add("llama");
  add("llama31").rope = TinyRope::kFrequencyFactors;
  add("llama_linear").rope = TinyRope::kLinear;
  add("llama_yarn").rope = TinyRope::kYarn;
  add("llama_biases").bias = TinyBias::kEverywhere;
  TinyModelConfig& mistral = add("mistral");
  mistral.group = 4;
  mistral.tokenizer = TinyTokenizer::kSentencePiece;
  TinyModelConfig& qwen2 = add("qwen2");
  qwen2.family = Family::kQwen2;
  qwen2.group = 7;
  qwen2.output = TinyOutput::kTied;
  add("qwen3").family = Family::kQwen3;
  TinyModelConfig& gemma3 = add("gemma3");
  gemma3.family = Family::kGemma3;
  gemma3.layers = 7;  // the sixth is global
  gemma3.kv_heads = 1;
  gemma3.group = 4;
  gemma3.output = TinyOutput::kTied;
  gemma3.tokenizer = TinyTokenizer::kSentencePiece;
  gemma3.final_softcap = 10.0f;
  return models;
}

TinyModelFile::TinyModelFile(const TinyModelConfig& config) {
  std::string pattern = (std::filesystem::temp_directory_path() / "qevict-tiny-XXXXXX").string();
  QEVICT_CHECK(mkdtemp(pattern.data()) != nullptr);
  folder_ = pattern;
  path_ = folder_ + "/tiny.gguf";
  const Status written = WriteTinyModel(config, path_);
  QEVICT_CHECK(written.ok());
}

TinyModelFile::~TinyModelFile() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::vector<int32_t> RandomTokens(const TinyModelConfig& config, size_t count, uint64_t seed) {
  const TextTokens text = TextTokensOf(config.tokenizer);
  Random random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = int32_t(text.first + random.Below(text.last - text.first));
  return tokens;
}

}  // namespace qevict::test
