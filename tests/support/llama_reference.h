// libllama running a GGUF file on the CPU, as the reference that qevict is compared with.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/token.h"
#include "qevict/status.h"

struct llama_context;
struct llama_model;

namespace qevict::test {

enum class FlashAttention { kOff, kOn };
enum class LlamaKvType { kF16, kF32 };
enum class ReferenceRows { kLast, kAll };

struct ReferenceOptions {
  FlashAttention flash_attention = FlashAttention::kOff;
  LlamaKvType kv_type = LlamaKvType::kF16;
  uint32_t context_tokens = 4096;
  uint32_t chunk_tokens = 512;  // per llama_decode, and per graph
  int32_t threads = 2;
};

// One sequence. Not thread-safe.
class LlamaReference {
 public:
  // Error kBadFile with libllama's own reason.
  [[nodiscard]] static Result<std::unique_ptr<LlamaReference>> Load(
      const std::string& path, const ReferenceOptions& options = {});
  LlamaReference(const LlamaReference&) = delete;
  LlamaReference& operator=(const LlamaReference&) = delete;
  ~LlamaReference();

  // Appends tokens; the result is [rows, vocab], row-major. Error kInternal: libllama failed (the
  // context is full, for one).
  [[nodiscard]] Result<std::vector<float>> Decode(std::span<const Token> tokens,
                                                  ReferenceRows rows = ReferenceRows::kLast);
  void Clear();  // forgets all tokens
  uint32_t size_tokens() const { return size_tokens_; }
  size_t vocab_size() const { return vocab_size_; }
  std::vector<Token> Tokenize(
      std::string_view text) const;  // with BOS if the model asks for it; no special tokens

 private:
  LlamaReference() = default;
  llama_model* model_ = nullptr;
  llama_context* context_ = nullptr;
  ReferenceOptions options_;
  uint32_t size_tokens_ = 0;
  size_t vocab_size_ = 0;
};

// The lowest id among the largest logits.
Token Greedy(std::span<const float> logits);

}  // namespace qevict::test
