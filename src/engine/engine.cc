#include "engine/engine.h"

#include <algorithm>
#include <string>

#include "cache/batch_attention.h"
#include "core/cpu_count.h"
#include "core/isa.h"
#include "model/model_runner.h"

namespace qevict {
namespace {

constexpr uint32_t kMaxThreads = 256;
constexpr uint32_t kMaxPrefillChunk = 4096;

static_assert(kMaxSupportedHeadDim == kMaxHeadDim, "the model accepts what the kernels can attend");

KvShape ShapeOf(const Hyperparameters& h) {
  return {.layers = h.layers,
          .kv_heads = h.kv_heads,
          .group = h.group(),
          .head_dim = h.head_dim,
          .swa_window = h.swa_window,
          .swa_layer = h.swa_layer,
          .score_scale = h.attention_scale};
}

class FullCacheSequence final : public Sequence {
 public:
  explicit FullCacheSequence(SequenceKv kv) : kv_(std::move(kv)) {}
  uint32_t size_tokens() const override { return kv_.size_tokens(); }
  uint32_t capacity_tokens() const override { return kv_.capacity_tokens(); }
  std::span<const Token> tokens() const override { return tokens_; }
  KvUsage kv_usage() const override {
    const KvShape& shape = kv_.shape();
    const uint64_t bytes = kv_.resident_bytes();
    return {bytes, bytes, bytes,
            uint64_t{shape.layers} * shape.layer_token_bytes() * kv_.capacity_tokens()};
  }
  Status Truncate(uint32_t size_tokens) override {
    if (size_tokens > kv_.size_tokens()) {
      return Fail(ErrorCode::kInvalidArgument,
                  "a sequence of " + std::to_string(kv_.size_tokens()) +
                      " tokens cannot be cut to " + std::to_string(size_tokens));
    }
    QEVICT_RETURN_IF_ERROR(kv_.Truncate(size_tokens));
    tokens_.resize(size_tokens);
    return {};
  }

  SequenceKv& kv() { return kv_; }
  void Commit(std::span<const Token> tokens) {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    kv_.Commit();
  }

 private:
  SequenceKv kv_;
  std::vector<Token> tokens_;
};

class GgufEngine final : public Engine {
 public:
  static Result<std::unique_ptr<Engine>> Load(const EngineConfig& config) {
    std::unique_ptr<GgufEngine> engine(new GgufEngine);
    engine->threads_ = config.threads == 0 ? UsableCores() : config.threads;
    if (engine->threads_ > kMaxThreads) {
      return Fail(ErrorCode::kInvalidArgument, "--threads " + std::to_string(config.threads) +
                                                   " is more than " + std::to_string(kMaxThreads));
    }
    if (config.prefill_chunk < 1 || config.prefill_chunk > kMaxPrefillChunk) {
      return Fail(ErrorCode::kInvalidArgument, "--chunk " + std::to_string(config.prefill_chunk) +
                                                   " is not in 1 .. " +
                                                   std::to_string(kMaxPrefillChunk));
    }
    engine->prefill_chunk_ = config.prefill_chunk;
    QEVICT_ASSIGN_OR_RETURN(engine->isa_, SelectIsa());
    QEVICT_ASSIGN_OR_RETURN(engine->file_, GgufFile::Open(config.model_path));
    QEVICT_ASSIGN_OR_RETURN(engine->hyperparameters_, ReadHyperparameters(*engine->file_));
    QEVICT_RETURN_IF_ERROR(ValidateTensors(*engine->file_, engine->hyperparameters_));
    QEVICT_ASSIGN_OR_RETURN(engine->tokenizer_, Tokenizer::Load(*engine->file_));
    engine->attention_ = std::make_unique<BatchAttention>(ShapeOf(engine->hyperparameters_),
                                                          engine->isa_, engine->threads_);
    QEVICT_ASSIGN_OR_RETURN(engine->runner_,
                            ModelRunner::Load(*engine->file_, engine->hyperparameters_,
                                              *engine->attention_, engine->threads_));
    return engine;
  }

  const Hyperparameters& hyperparameters() const override { return hyperparameters_; }
  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  uint32_t threads() const override { return threads_; }
  std::string_view isa_name() const override { return IsaName(isa_); }

  Result<std::unique_ptr<Sequence>> NewSequence(uint32_t capacity_tokens) override {
    if (capacity_tokens == 0 || capacity_tokens > hyperparameters_.context_train) {
      return Fail(ErrorCode::kInvalidArgument, "a context of " + std::to_string(capacity_tokens) +
                                                   " tokens is not in 1 .. " +
                                                   std::to_string(hyperparameters_.context_train) +
                                                   ", the model's own; change --ctx");
    }
    auto kv = SequenceKv::Create(ShapeOf(hyperparameters_), {.capacity_tokens = capacity_tokens,
                                                             .max_batch_tokens = prefill_chunk_});
    if (!kv) {
      return Fail(kv.error().code, "no memory for a cache of " + std::to_string(capacity_tokens) +
                                       " tokens: " + kv.error().message + "; lower --ctx");
    }
    return std::make_unique<FullCacheSequence>(std::move(*kv));
  }

  Status Run(std::span<BatchItem> batch, const CancelFn& cancel) override {
    QEVICT_RETURN_IF_ERROR(Validate(batch));
    tokens_.clear();
    positions_.clear();
    logit_rows_.clear();
    slices_.clear();
    for (const BatchItem& item : batch) {
      SequenceKv& kv = KvOf(item);
      const uint32_t first_row = uint32_t(tokens_.size()), count = uint32_t(item.tokens.size());
      slices_.push_back({&kv, first_row, count});
      tokens_.insert(tokens_.end(), item.tokens.begin(), item.tokens.end());
      for (uint32_t t = 0; t < count; ++t) positions_.emplace_back(kv.size_tokens() + t);
      for (uint32_t t = FirstLogitToken(item); t < count; ++t) logit_rows_.push_back(first_row + t);
      kv.BeginBatch(count);
    }
    QEVICT_RETURN_IF_ERROR(attention_->Bind(slices_));
    QEVICT_ASSIGN_OR_RETURN(std::span<const float> logits, runner_->Run({.tokens = tokens_,
                                                                         .positions = positions_,
                                                                         .logit_rows = logit_rows_,
                                                                         .cancel = &cancel}));
    for (const BatchItem& item : batch) {
      const size_t floats = (item.tokens.size() - FirstLogitToken(item)) * hyperparameters_.vocab;
      if (floats != 0) item.logits_out->assign(logits.begin(), logits.begin() + ptrdiff_t(floats));
      logits = logits.subspan(floats);
      static_cast<FullCacheSequence*>(item.sequence)->Commit(item.tokens);
    }
    return {};
  }

 private:
  GgufEngine() = default;

  static SequenceKv& KvOf(const BatchItem& item) {
    return static_cast<FullCacheSequence*>(item.sequence)->kv();
  }

  // The first token of the item whose logits are wanted.
  static uint32_t FirstLogitToken(const BatchItem& item) {
    const uint32_t count = uint32_t(item.tokens.size());
    if (item.logits_out == nullptr || item.logits == LogitRows::kNone) return count;
    return item.logits == LogitRows::kLast ? count - 1 : 0;
  }

  Status Validate(std::span<const BatchItem> batch) const {
    if (batch.empty())
      return Fail(ErrorCode::kInvalidArgument, "a batch needs at least one sequence");
    for (size_t i = 0; i < batch.size(); ++i) {
      const BatchItem& item = batch[i];
      const Sequence& sequence = *item.sequence;
      if (item.tokens.empty() || item.tokens.size() > prefill_chunk_) {
        return Fail(ErrorCode::kInvalidArgument,
                    "a batch item has " + std::to_string(item.tokens.size()) + " tokens; 1 .. " +
                        std::to_string(prefill_chunk_) + " can run at once");
      }
      if (item.tokens.size() > sequence.capacity_tokens() - sequence.size_tokens()) {
        return Fail(ErrorCode::kContextFull,
                    std::to_string(sequence.size_tokens()) + " + " +
                        std::to_string(item.tokens.size()) + " tokens exceed the context of " +
                        std::to_string(sequence.capacity_tokens()) + "; raise --ctx");
      }
      for (Token token : item.tokens) {
        if (token < 0 || uint32_t(token) >= hyperparameters_.vocab) {
          return Fail(ErrorCode::kInvalidArgument, "token " + std::to_string(token) +
                                                       " is outside the vocabulary of " +
                                                       std::to_string(hyperparameters_.vocab));
        }
      }
      for (size_t j = 0; j < i; ++j) {
        if (batch[j].sequence == item.sequence) {
          return Fail(ErrorCode::kInvalidArgument, "a sequence occurs twice in a batch");
        }
      }
    }
    return {};
  }

  uint32_t threads_ = 1;
  Isa isa_ = Isa::kScalar;
  std::unique_ptr<GgufFile> file_;
  Hyperparameters hyperparameters_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<BatchAttention> attention_;
  std::unique_ptr<ModelRunner> runner_;
  // Of the current step, kept for their capacity.
  std::vector<Token> tokens_;
  std::vector<Position> positions_;
  std::vector<uint32_t> logit_rows_;
  std::vector<BatchSlice> slices_;
};

}  // namespace

Result<std::unique_ptr<Engine>> Engine::Load(const EngineConfig& config) {
  return GgufEngine::Load(config);
}

Status Engine::Prefill(Sequence& sequence, std::span<const Token> tokens,
                       std::vector<float>* logits_out, const ProgressFn& progress,
                       const CancelFn& cancel) {
  if (tokens.empty()) return Fail(ErrorCode::kInvalidArgument, "the prompt is empty");
  if (tokens.size() > sequence.capacity_tokens() - sequence.size_tokens()) {
    return Fail(ErrorCode::kContextFull,
                "the prompt has " + std::to_string(tokens.size()) + " tokens but " +
                    std::to_string(sequence.capacity_tokens() - sequence.size_tokens()) +
                    " fit into the context; raise --ctx or shorten the prompt");
  }
  for (size_t begin = 0; begin < tokens.size(); begin += prefill_chunk_) {
    const size_t count = std::min<size_t>(prefill_chunk_, tokens.size() - begin);
    const bool last = begin + count == tokens.size();
    BatchItem item{.sequence = &sequence,
                   .tokens = tokens.subspan(begin, count),
                   .logits = last ? LogitRows::kLast : LogitRows::kNone,
                   .logits_out = last ? logits_out : nullptr};
    QEVICT_RETURN_IF_ERROR(Run({&item, 1}, cancel));
    if (progress) progress(uint32_t(begin + count), uint32_t(tokens.size()));
  }
  return {};
}

}  // namespace qevict
