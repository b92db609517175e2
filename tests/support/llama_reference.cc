#include "support/llama_reference.h"

#include <fmt/format.h>
#include <llama.h>

#include <algorithm>

#include "model/ggml_log.h"

namespace qevict::test {

Result<std::unique_ptr<LlamaReference>> LlamaReference::Load(const std::string& path,
                                                             const ReferenceOptions& options) {
  RouteGgmlLog();
  TakeGgmlError();
  std::unique_ptr<LlamaReference> reference(new LlamaReference);
  reference->options_ = options;
  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  reference->model_ = llama_model_load_from_file(path.c_str(), model_params);
  if (reference->model_ == nullptr) {
    return Fail(ErrorCode::kBadFile,
                fmt::format("libllama cannot load '{}': {}", path, TakeGgmlError()));
  }
  llama_context_params params = llama_context_default_params();
  params.n_ctx = options.context_tokens;
  params.n_batch = params.n_ubatch = options.chunk_tokens;
  params.n_threads = params.n_threads_batch = options.threads;
  params.flash_attn_type = options.flash_attention == FlashAttention::kOn
                               ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                               : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = params.type_v =
      options.kv_type == LlamaKvType::kF16 ? GGML_TYPE_F16 : GGML_TYPE_F32;
  reference->context_ = llama_init_from_model(reference->model_, params);
  if (reference->context_ == nullptr) {
    return Fail(ErrorCode::kInternal,
                fmt::format("libllama cannot make a context for '{}': {}", path, TakeGgmlError()));
  }
  reference->vocab_size_ = size_t(llama_vocab_n_tokens(llama_model_get_vocab(reference->model_)));
  return reference;
}

LlamaReference::~LlamaReference() {
  if (context_ != nullptr) llama_free(context_);
  if (model_ != nullptr) llama_model_free(model_);
}

Result<std::vector<float>> LlamaReference::Decode(std::span<const Token> tokens,
                                                  ReferenceRows rows) {
  std::vector<float> logits;
  llama_batch batch = llama_batch_init(int32_t(options_.chunk_tokens), /*embd=*/0, /*n_seq_max=*/1);
  const std::unique_ptr<llama_batch, void (*)(llama_batch*)> guard(
      &batch, [](llama_batch* b) { llama_batch_free(*b); });
  for (size_t begin = 0; begin < tokens.size(); begin += options_.chunk_tokens) {
    const size_t count = std::min<size_t>(options_.chunk_tokens, tokens.size() - begin);
    batch.n_tokens = int32_t(count);
    for (size_t i = 0; i < count; ++i) {
      batch.token[i] = tokens[begin + i];
      batch.pos[i] = llama_pos(size_tokens_ + i);
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = rows == ReferenceRows::kAll || begin + i + 1 == tokens.size();
    }
    if (const int32_t status = llama_decode(context_, batch); status != 0) {
      return Fail(ErrorCode::kInternal,
                  fmt::format("llama_decode failed with {}: {}", status, TakeGgmlError()));
    }
    size_tokens_ += uint32_t(count);
    for (size_t i = 0; i < count; ++i) {
      if (!batch.logits[i]) continue;
      const float* row = llama_get_logits_ith(context_, int32_t(i));
      logits.insert(logits.end(), row, row + vocab_size_);
    }
  }
  return logits;
}

void LlamaReference::Clear() {
  llama_memory_clear(llama_get_memory(context_), /*data=*/false);
  size_tokens_ = 0;
}

std::vector<Token> LlamaReference::Tokenize(std::string_view text) const {
  std::vector<Token> tokens(text.size() + 8);
  const int32_t count = llama_tokenize(llama_model_get_vocab(model_), text.data(),
                                       int32_t(text.size()), tokens.data(), int32_t(tokens.size()),
                                       /*add_special=*/true, /*parse_special=*/false);
  tokens.resize(size_t(std::max(count, 0)));
  return tokens;
}

Token Greedy(std::span<const float> logits) {
  return Token(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace qevict::test
