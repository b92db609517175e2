// Small GGUF files with random weights, one for every model family and head size, that both qevict
// and libllama load. Weights are scaled so that attention is peaked and logits are spread: a wrong
// mask, rotation or head shows in them. The same configuration always gives the same bytes.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/hyperparameters.h"
#include "qevict/status.h"

struct gguf_context;

namespace qevict::test {

enum class TinyRope { kPlain, kFrequencyFactors, kLinear, kYarn };
enum class TinyTokenizer { kByteBpe, kSentencePiece };
enum class TinyOutput { kOwn, kTied };
// Everywhere: all biases that the llama family may have.
enum class TinyBias { kOfFamily, kEverywhere };

struct TinyTensor {
  std::string name;
  int64_t inputs = 0, outputs = 0;  // outputs == 1: a vector
  ggml_type type = GGML_TYPE_F32;
  float mean = 0.0f, deviation = 1.0f;
};

struct TinyModelConfig {
  Family family = Family::kLlama;
  TinyRope rope = TinyRope::kPlain;
  TinyTokenizer tokenizer = TinyTokenizer::kByteBpe;
  TinyOutput output = TinyOutput::kOwn;
  TinyBias bias = TinyBias::kOfFamily;
  uint32_t layers = 2, kv_heads = 2, group = 2, head_dim = 64;
  uint32_t embedding = 256;  // qwen2: heads * head_dim instead, as its format demands
  uint32_t feed_forward = 512, vocab = 512, context = 4096;
  // Of the matrices. A row that is no whole number of blocks falls back to Q8_0, then to F16.
  ggml_type type = GGML_TYPE_F16;
  uint32_t swa_window = 32;    // gemma3
  float final_softcap = 0.0f;  // gemma3
  uint64_t seed = 1;
  // For files that are wrong on purpose; both may be empty.
  std::function<void(gguf_context*)> edit_metadata = {};
  std::function<void(std::vector<TinyTensor>&)> edit_tensors = {};

  uint32_t heads() const { return kv_heads * group; }
  uint32_t embedding_length() const {
    return family == Family::kQwen2 ? heads() * head_dim : embedding;
  }
};

struct NamedTinyModel {
  std::string name;  // letters, digits and '_' only, for test names
  TinyModelConfig config;
};
// llama (plain, Llama 3.1's frequency factors, linear and YaRN scaling, Mistral's shape, all
// biases), qwen2, qwen3, gemma3.
std::vector<NamedTinyModel> TinyFamilies(uint32_t head_dim);

Status WriteTinyModel(const TinyModelConfig& config, const std::string& path);

// A file in a folder of its own that is removed with the object.
class TinyModelFile {
 public:
  explicit TinyModelFile(const TinyModelConfig& config);  // failure ends the test program
  TinyModelFile(const TinyModelFile&) = delete;
  TinyModelFile& operator=(const TinyModelFile&) = delete;
  ~TinyModelFile();
  const std::string& path() const { return path_; }

 private:
  std::string folder_, path_;
};

// `count` ids of tokens that stand for text, the same for the same seed.
std::vector<int32_t> RandomTokens(const TinyModelConfig& config, size_t count, uint64_t seed);

}  // namespace qevict::test
