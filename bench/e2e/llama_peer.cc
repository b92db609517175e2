#include "bench/e2e/llama_peer.h"

#include <fit.h>
#include <fmt/format.h>
#include <ggml-backend.h>
#include <llama.h>

#include <algorithm>
#include <vector>

#include "model/cpu_backend.h"
#include "model/ggml_log.h"

namespace qevict::bench {
namespace {

// Its own defaults, and its fastest: 2,048 tokens of Qwen2.5-Coder-0.5B Q4_K_M ran at 121 tokens/s,
// against 118 with an n_ubatch of 1024 and 99 with 2048 (Zen 4, two cores without AVX-512, November
// 2026).
constexpr uint32_t kBatchTokens = 2048, kMicroBatchTokens = 512;
// BLAS turns a weight matrix into f32 for every micro-batch anew: few large ones. It reads no
// repacked weights; with repacking off, 512 tokens of Qwen2.5-Coder-1.5B Q4_K_M took a core's time
// at 36 tokens/s, and with it, as libllama has it by default, at 45 (Zen 4, one thread, November
// 2026).
constexpr uint32_t kBlasMicroBatchTokens = 2048;

bool HasBlas() {
  ggml_backend_reg_t blas = ggml_backend_reg_by_name("BLAS");
  return blas != nullptr && ggml_backend_reg_dev_count(blas) > 0;
}

class LlamaPeer final : public BenchEngine {
 public:
  static Result<std::unique_ptr<BenchEngine>> Load(const BenchEngineConfig& config,
                                                   LlamaProducts products) {
    RouteGgmlLog();
    LoadGgmlBackends();
    if (products == LlamaProducts::kBlas && !HasBlas()) {
      return Fail(ErrorCode::kUnsupported,
                  "the peer's ggml has no BLAS backend; run bench/peers/setup-llama-blas.sh again");
    }
    std::unique_ptr<LlamaPeer> peer(new LlamaPeer(products));
    peer->model_path_ = config.model_path;
    peer->model_params_ = llama_model_default_params();
    peer->model_params_.n_gpu_layers = 0;
    peer->context_params_ = ContextParams(config, products);
    peer->model_.reset(llama_model_load_from_file(config.model_path.c_str(), peer->model_params_));
    if (peer->model_ == nullptr) {
      return Fail(ErrorCode::kBadFile,
                  fmt::format("libllama cannot load {}: {}", config.model_path, TakeGgmlError()));
    }
    peer->context_.reset(llama_init_from_model(peer->model_.get(), peer->context_params_));
    if (peer->context_ == nullptr) {
      return Fail(ErrorCode::kOutOfMemory,
                  fmt::format("libllama cannot make a context of {} tokens: {}",
                              config.capacity_tokens, TakeGgmlError()));
    }
    peer->vocab_size_ = llama_vocab_n_tokens(llama_model_get_vocab(peer->model_.get()));
    return peer;
  }

  Status Append(std::span<const Token> tokens) override {
    // Without positions and flags libllama continues the sequence and computes the last token's
    // logits.
    while (!tokens.empty()) {
      const size_t count = std::min<size_t>(tokens.size(), context_params_.n_batch);
      tokens_.assign(tokens.begin(), tokens.begin() + ptrdiff_t(count));
      const int32_t status =
          llama_decode(context_.get(), llama_batch_get_one(tokens_.data(), int32_t(count)));
      if (status != 0) {
        return Fail(ErrorCode::kInternal,
                    fmt::format("llama_decode failed with {}: {}", status, TakeGgmlError()));
      }
      tokens = tokens.subspan(count);
    }
    llama_synchronize(context_.get());
    return {};
  }

  Status Truncate(uint32_t size_tokens) override {
    if (llama_memory_seq_rm(llama_get_memory(context_.get()), 0, llama_pos(size_tokens), -1))
      return {};
    return Fail(ErrorCode::kUnsupported,
                fmt::format("libllama cannot go back to {} tokens", size_tokens));
  }

  Token NextToken() const override {
    const float* logits = llama_get_logits_ith(context_.get(), -1);
    return Token(std::max_element(logits, logits + vocab_size_) - logits);
  }

  // libllama tells this only of a model that it loads for the purpose, without weights.
  Result<uint64_t> KvBytes() override {
    std::vector<ggml_backend_dev_t> devices;
    uint32_t layers = 0, context = 0, experts = 0;
    uint64_t bytes = 0;
    try {
      for (const common_device_memory_data& memory :
           common_get_device_memory_data(model_path_.c_str(), &model_params_, &context_params_,
                                         devices, layers, context, experts, GGML_LOG_LEVEL_ERROR)) {
        bytes += memory.context;
      }
    } catch (const std::exception& error) {
      return Fail(ErrorCode::kInternal,
                  fmt::format("libllama cannot say the size of its cache: {}", error.what()));
    }
    return bytes;
  }

  std::string Settings() const override {
    return fmt::format("flash attention, f16 KV, n_batch {}, n_ubatch {}{}",
                       context_params_.n_batch, context_params_.n_ubatch,
                       products_ == LlamaProducts::kBlas ? ", BLAS for what is not repacked" : "");
  }

 private:
  struct Deleter {
    void operator()(llama_model* model) const { llama_model_free(model); }
    void operator()(llama_context* context) const { llama_free(context); }
  };
  explicit LlamaPeer(LlamaProducts products) : products_(products) {}

  static llama_context_params ContextParams(const BenchEngineConfig& config,
                                            LlamaProducts products) {
    const uint32_t best =
        products == LlamaProducts::kBlas ? kBlasMicroBatchTokens : kMicroBatchTokens;
    llama_context_params params = llama_context_default_params();
    params.n_ctx = config.capacity_tokens;
    params.n_ubatch = config.chunk_tokens == 0 ? best : config.chunk_tokens;
    params.n_batch = std::max(kBatchTokens, params.n_ubatch);
    params.n_threads = params.n_threads_batch = int32_t(config.threads);
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.type_k = params.type_v = GGML_TYPE_F16;
    // As in its own programs: sliding-window layers keep their window alone.
    params.swa_full = false;
    return params;
  }

  LlamaProducts products_;
  std::string model_path_;
  llama_model_params model_params_{};
  llama_context_params context_params_{};
  std::unique_ptr<llama_model, Deleter> model_;
  std::unique_ptr<llama_context, Deleter> context_;  // after the model: it must go first
  int32_t vocab_size_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::unique_ptr<BenchEngine>> LoadLlamaPeer(const BenchEngineConfig& config,
                                                   LlamaProducts products) {
  return LlamaPeer::Load(config, products);
}

}  // namespace qevict::bench
