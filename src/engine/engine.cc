#include "engine/engine.h"

#include <algorithm>
#include <string>

#include "cache/batch_attention.h"
#include "cache/cache_plan.h"
#include "cache/raise_order.h"
#include "cache/reference_attention.h"
#include "core/cpu_count.h"
#include "core/isa.h"
#include "core/out_of_memory.h"
#include "engine/cached_sequence.h"
#include "engine/codec_fit.h"
#include "model/model_runner.h"
#include "model/validate_tensors.h"
#include "policy/routing_policy.h"

namespace qevict {
namespace {

constexpr uint32_t kMaxPrefillChunk = 4096;
// Chunks of a streamed prompt that are routed together: weights are unpacked once for all of them.
constexpr size_t kStreamChunks = 4;

constexpr char kNoRoomForPrompt[] =
    "not enough memory to read the prompt; lower --ctx or --chunk, or use --prefill stream";

static_assert(kMaxSupportedHeadDim == kMaxHeadDim && kMaxGroup <= kPrefillMaxRows,
              "the model accepts what the kernels can attend");

TierSplit SplitOf(CachePolicy policy) {
  switch (policy) {
    case CachePolicy::kFull:
      return TierSplit::kFullOnly;
    case CachePolicy::kQuant:
      return TierSplit::kCodeAll;
    case CachePolicy::kEvict:
      return TierSplit::kFullHistory;
    case CachePolicy::kQevict:
      return TierSplit::kFullAndCodes;
    case CachePolicy::kAuto:
      return TierSplit::kCodeHistory;
  }
  return TierSplit::kFullOnly;
}

// Whether all are finite: x - x is 0, or else not a number, and so is their sum. Partial sums, for
// vectors.
Status CheckNumbers(std::span<const float> logits) {
  constexpr size_t kLanes = 16;
  float sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += logits[i + lane] - logits[i + lane];
  }
  for (; i < logits.size(); ++i) sums[0] += logits[i] - logits[i];
  for (const float sum : sums) {
    if (sum != 0.0f) {
      return Fail(ErrorCode::kBadFile,
                  "the model computes values that are no numbers; its file is damaged: fetch it "
                  "again");
    }
  }
  return {};
}

class GgufEngine final : public Engine {
 public:
  static Result<std::unique_ptr<Engine>> Load(const EngineConfig& config,
                                              const ProgressFn& progress, const CancelFn& cancel) {
    std::unique_ptr<GgufEngine> engine(new GgufEngine);
    QEVICT_RETURN_IF_ERROR(config.cache.Validate());
    engine->cache_ = config.cache;
    engine->routing_observer_ = config.routing_observer;
    engine->threads_ = config.threads == 0 ? UsableCores() : config.threads;
    if (engine->threads_ > kMostThreads) {
      return Fail(ErrorCode::kInvalidArgument, "--threads " + std::to_string(config.threads) +
                                                   " is more than " + std::to_string(kMostThreads));
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
    engine->MakeAttention(config);
    QEVICT_ASSIGN_OR_RETURN(
        engine->runner_,
        ModelRunner::Load(*engine->file_, engine->hyperparameters_, *engine->attention_,
                          {engine->threads_, engine->isa_, config.products}));
    if (config.cache.codes() || config.fit_codec) {
      QEVICT_ASSIGN_OR_RETURN(
          engine->codec_,
          FitCodec({*engine->file_, *engine, *engine->attention_, engine->prefill_chunk_},
                   config.cache, progress, cancel));
      if (config.cache.raises_bits()) {
        engine->raises_ = RaiseOrder(engine->hyperparameters_.kv_shape(), *engine->codec_);
      }
    }
    return engine;
  }

  const Hyperparameters& hyperparameters() const override { return hyperparameters_; }
  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  uint32_t threads() const override { return threads_; }
  std::string_view isa_name() const override { return IsaName(isa_); }

  Result<std::unique_ptr<Sequence>> NewSequence(uint32_t capacity_tokens) override {
    return MakeSequence(
        capacity_tokens,
        {.tiered = cache_.tiered(), .kv_type = cache_.kv_type, .budget = cache_.budget});
  }
  Result<std::unique_ptr<Sequence>> NewFullSequence(uint32_t capacity_tokens) override {
    return MakeSequence(capacity_tokens, {});
  }
  const WindowCodec* codec() const override { return codec_.get(); }

  Status Run(std::span<BatchItem> batch, const CancelFn& cancel) override {
    QEVICT_RETURN_IF_ERROR(Validate(batch));
    const Status done = OrOutOfMemory(
        "not enough memory for the tokens and logits of a batch; lower --chunk or --ctx",
        [&] { return RunBatch(batch, cancel); });
    if (!done.ok()) {
      for (const BatchItem& item : batch) item.sequence->kv().AbandonBatch();
    }
    return done;
  }

  Status Prefill(Sequence& sequence, std::span<const Token> tokens, std::vector<float>* logits_out,
                 const ProgressFn& progress, const CancelFn& cancel) override {
    return OrOutOfMemory(kNoRoomForPrompt, [&] {
      return ReadPrompt(sequence, tokens, logits_out, progress, cancel);
    });
  }

 private:
  GgufEngine() = default;

  void MakeAttention(const EngineConfig& config) {
    const KvShape shape = hyperparameters_.kv_shape();
    if (config.attention == AttentionKind::kReference) {
      attention_ = std::make_unique<ReferenceAttention>(shape, threads_);
    } else {
      attention_ = std::make_unique<BatchAttention>(
          shape, isa_, threads_,
          config.products == Products::kFastest ? PromptArithmetic::kBf16 : PromptArithmetic::kF32);
    }
  }

  // A sequence's own part of the cache's configuration.
  struct SequenceCache {
    bool tiered = false;  // or every token full
    KvType kv_type = KvType::kF16;
    std::optional<KvBudget> budget = {};
  };
  Result<std::unique_ptr<Sequence>> MakeSequence(uint32_t capacity_tokens,
                                                 const SequenceCache& cache) {
    if (capacity_tokens == 0 || capacity_tokens > hyperparameters_.context_train) {
      return Fail(ErrorCode::kInvalidArgument, "a context of " + std::to_string(capacity_tokens) +
                                                   " tokens is not in 1 .. " +
                                                   std::to_string(hyperparameters_.context_train) +
                                                   ", the model's own; change --ctx");
    }
    const auto make = [&]() -> Result<std::unique_ptr<Sequence>> {
      const KvShape shape = hyperparameters_.kv_shape();
      QEVICT_ASSIGN_OR_RETURN(const CachePlan plan, PlanFor(shape, capacity_tokens, cache));
      auto kv = SequenceKv::Create(shape, {.capacity_tokens = capacity_tokens,
                                           .max_batch_tokens = prefill_chunk_,
                                           .geometry = cache_.geometry,
                                           .plan = plan,
                                           .promotion = cache_.promotion,
                                           .scoring = cache_.scoring(),
                                           .codec = cache.tiered ? codec_.get() : nullptr,
                                           .policy = cache.tiered ? &policy_ : nullptr,
                                           .observer = cache.tiered ? routing_observer_ : nullptr});
      if (!kv) {
        return Fail(kv.error().code, "no memory for a cache of " + std::to_string(capacity_tokens) +
                                         " tokens: " + kv.error().message +
                                         "; lower --ctx or --kv-budget");
      }
      return std::make_unique<CachedSequence>(std::move(*kv));
    };
    return OrOutOfMemory("no memory for the plan of a cache; lower --ctx", make);
  }

  Result<CachePlan> PlanFor(const KvShape& shape, uint32_t capacity_tokens,
                            const SequenceCache& cache) const {
    PlanRequest request{.split = cache.tiered ? SplitOf(cache_.policy) : TierSplit::kFullOnly,
                        .full_share = cache_.full_share,
                        .geometry = cache_.geometry,
                        .key_bits = cache_.least_key_bits(),
                        .value_bits = cache_.least_value_bits(),
                        .scoring = cache_.scoring(),
                        .capacity_tokens = capacity_tokens,
                        .max_batch_tokens = prefill_chunk_,
                        .limit_bytes = UINT64_MAX,
                        .kv_type = cache.kv_type,
                        .raises = raises_};
    if (cache.budget) {
      request.limit_bytes = cache.budget->LimitBytes(FullCacheBytes(shape, capacity_tokens));
    } else if (request.split == TierSplit::kCodeAll) {
      request.limit_bytes = CodeAllBytes(shape, request);
    }
    return PlanCache(shape, request);
  }

  // A prompt into the empty cache that does not fit: routed layer by layer.
  bool PassesExactly(SequenceKv& kv, size_t tokens) const {
    return kv.tiered() && cache_.prefill == PrefillMode::kExact && kv.size_tokens() == 0 &&
           kv.needs_staging(uint32_t(tokens));
  }

  // Of so many tokens to come, how many pass layer by layer next; 0: the next chunk in one Run.
  size_t PieceTokens(Sequence& sequence, size_t tokens) const {
    SequenceKv& kv = sequence.kv();
    if (PassesExactly(kv, tokens)) return tokens;
    size_t piece = tokens;
    if (kv.size_tokens() != 0 && kv.shape().swa_window != 0) {
      // A ring that took more than a chunk would have lost its window if the piece were cancelled.
      piece = std::min<size_t>(tokens, prefill_chunk_);
    } else if (kv.needs_staging(uint32_t(tokens))) {
      piece = std::min<size_t>(tokens, kStreamChunks * prefill_chunk_);
    }
    return runner_->unpacks(piece) ? piece : 0;
  }

  // A piece of a prompt that passes through the model layer by layer.
  struct Piece {
    Sequence* sequence;
    std::span<const Token> tokens;
    std::vector<float>* logits_out;  // null: none
    const ProgressFn& progress;      // of the piece; may be empty
    const CancelFn& cancel;
  };

  // Binds attention to the chunk and layer that the runner is about to compute.
  class PieceSteps final : public LayerSteps {
   public:
    // kExact: each layer is routed before the next begins.
    PieceSteps(GgufEngine& engine, SequenceKv& kv, const Piece& piece, PrefillMode mode)
        : engine_(engine), kv_(kv), piece_(piece), mode_(mode) {}
    Status BeginLayer(LayerId layer) override {
      if (mode_ == PrefillMode::kExact) kv_.BeginLayer(layer);
      return {};
    }
    Status BeginChunk(LayerId layer, uint32_t first, uint32_t rows) override {
      kv_.SetPassed(first);
      // Tokens that vote on windows are the piece's last ones; they may lie in several chunks.
      const uint32_t tokens = uint32_t(piece_.tokens.size());
      const uint32_t voters = std::clamp(kv_.VotersFrom(tokens), first, first + rows) - first;
      const BatchSlice slice{&kv_, 0, rows, voters};
      if (piece_.progress) {
        const uint64_t layers = engine_.hyperparameters_.layers;
        piece_.progress(uint32_t((uint64_t{layer.value} * tokens + first) / layers), tokens);
      }
      return engine_.attention_->Bind({&slice, 1}, {layer.value, layer.value + 1});
    }
    void EndLayer(LayerId layer) override {
      if (mode_ == PrefillMode::kExact) kv_.CommitLayer(layer);
    }

   private:
    GgufEngine& engine_;
    SequenceKv& kv_;
    const Piece& piece_;
    PrefillMode mode_;
  };

  Status ReadPrompt(Sequence& sequence, std::span<const Token> tokens,
                    std::vector<float>* logits_out, const ProgressFn& progress,
                    const CancelFn& cancel) {
    if (tokens.empty()) return Fail(ErrorCode::kInvalidArgument, "the prompt is empty");
    if (tokens.size() > sequence.capacity_tokens() - sequence.size_tokens()) {
      return Fail(ErrorCode::kContextFull,
                  "the prompt has " + std::to_string(tokens.size()) + " tokens but " +
                      std::to_string(sequence.capacity_tokens() - sequence.size_tokens()) +
                      " fit into the context; raise --ctx or shorten the prompt");
    }
    for (size_t begin = 0; begin < tokens.size();) {
      const size_t rest = tokens.size() - begin, piece = PieceTokens(sequence, rest);
      const size_t count = piece != 0 ? piece : std::min<size_t>(prefill_chunk_, rest);
      std::vector<float>* logits = count == rest ? logits_out : nullptr;
      if (piece != 0) {
        const ProgressFn of_piece = [&](uint32_t done, uint32_t /*total*/) {
          if (progress) progress(uint32_t(begin + done), uint32_t(tokens.size()));
        };
        QEVICT_RETURN_IF_ERROR(
            PassByLayer({&sequence, tokens.subspan(begin, count), logits, of_piece, cancel}));
      } else {
        BatchItem item{.sequence = &sequence,
                       .tokens = tokens.subspan(begin, count),
                       .logits = count == rest ? LogitRows::kLast : LogitRows::kNone,
                       .logits_out = logits};
        QEVICT_RETURN_IF_ERROR(Run({&item, 1}, cancel));
        if (progress) progress(uint32_t(begin + count), uint32_t(tokens.size()));
      }
      begin += count;
    }
    return {};
  }

  // What Run does with a batch that it has found valid. Throws std::bad_alloc before anything has
  // changed for good.
  Status RunBatch(std::span<BatchItem> batch, const CancelFn& cancel) {
    PlanBatch(batch);
    for (const BatchItem& item : batch)
      QEVICT_RETURN_IF_ERROR(item.sequence->kv().BeginBatch(uint32_t(item.tokens.size())));
    QEVICT_RETURN_IF_ERROR(attention_->Bind(slices_));
    QEVICT_ASSIGN_OR_RETURN(std::span<const float> logits, runner_->Run({.tokens = tokens_,
                                                                         .positions = positions_,
                                                                         .logit_rows = logit_rows_,
                                                                         .cancel = &cancel}));
    QEVICT_RETURN_IF_ERROR(CheckNumbers(logits));
    for (const BatchItem& item : batch) {
      const size_t floats = (item.tokens.size() - FirstLogitToken(item)) * hyperparameters_.vocab;
      if (floats != 0) std::copy_n(logits.begin(), floats, item.logits_out->begin());
      logits = logits.subspan(floats);
      static_cast<CachedSequence*>(item.sequence)->Commit(item.tokens);
    }
    return {};
  }

  Status PassByLayer(const Piece& piece) {
    BatchItem item{.sequence = piece.sequence,
                   .tokens = piece.tokens,
                   .logits = LogitRows::kLast,
                   .logits_out = piece.logits_out};
    QEVICT_RETURN_IF_ERROR(ValidateTokens(item));
    PlanBatch({&item, 1});
    auto& sequence = *static_cast<CachedSequence*>(piece.sequence);
    SequenceKv& kv = sequence.kv();
    const uint32_t count = uint32_t(piece.tokens.size());
    const bool exact = PassesExactly(kv, count);
    QEVICT_RETURN_IF_ERROR(exact ? kv.BeginPrompt(count) : kv.BeginBatch(count));
    PieceSteps steps(*this, kv, piece, exact ? PrefillMode::kExact : PrefillMode::kStream);
    const auto logits = OrOutOfMemory(kNoRoomForPrompt, [&] {
      return runner_->RunByLayer({.tokens = tokens_,
                                  .positions = positions_,
                                  .logit_rows = logit_rows_,
                                  .cancel = &piece.cancel},
                                 prefill_chunk_, steps);
    });
    kv.SetPassed(0);
    const Status done = logits ? CheckNumbers(*logits) : Status(logits.error());
    if (!done.ok()) {
      if (exact) {
        kv.AbandonPrompt();
      } else {
        kv.AbandonBatch();
      }
      return done;
    }
    if (piece.logits_out != nullptr) std::ranges::copy(*logits, piece.logits_out->begin());
    if (exact) {
      sequence.EndPrompt(piece.tokens);
    } else {
      sequence.Commit(piece.tokens);
    }
    if (piece.progress) piece.progress(count, count);
    return {};
  }

  // What the model is told of a batch, and room for everything that its commit writes, so that it
  // cannot fail half-way. Throws std::bad_alloc.
  void PlanBatch(std::span<const BatchItem> batch) {
    tokens_.clear();
    positions_.clear();
    logit_rows_.clear();
    slices_.clear();
    for (const BatchItem& item : batch) {
      auto& sequence = *static_cast<CachedSequence*>(item.sequence);
      SequenceKv& kv = sequence.kv();
      const uint32_t first_row = uint32_t(tokens_.size()), count = uint32_t(item.tokens.size());
      slices_.push_back({&kv, first_row, count, kv.VotersFrom(count)});
      tokens_.insert(tokens_.end(), item.tokens.begin(), item.tokens.end());
      for (uint32_t t = 0; t < count; ++t) positions_.emplace_back(kv.size_tokens() + t);
      const uint32_t first_logit = FirstLogitToken(item);
      for (uint32_t t = first_logit; t < count; ++t) logit_rows_.push_back(first_row + t);
      sequence.Reserve(count);
      if (first_logit != count)
        item.logits_out->resize(size_t{count - first_logit} * hyperparameters_.vocab);
    }
  }

  // The first token of the item whose logits are wanted.
  static uint32_t FirstLogitToken(const BatchItem& item) {
    const uint32_t count = uint32_t(item.tokens.size());
    if (item.logits_out == nullptr || item.logits == LogitRows::kNone) return count;
    return item.logits == LogitRows::kLast ? count - 1 : 0;
  }

  Status ValidateTokens(const BatchItem& item) const {
    for (Token token : item.tokens) {
      if (token < 0 || uint32_t(token) >= hyperparameters_.vocab) {
        return Fail(ErrorCode::kInvalidArgument, "token " + std::to_string(token) +
                                                     " is outside the vocabulary of " +
                                                     std::to_string(hyperparameters_.vocab));
      }
    }
    return {};
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
      QEVICT_RETURN_IF_ERROR(ValidateTokens(item));
      for (size_t j = 0; j < i; ++j) {
        if (batch[j].sequence == item.sequence) {
          return Fail(ErrorCode::kInvalidArgument, "a sequence occurs twice in a batch");
        }
      }
    }
    return {};
  }

  CacheConfig cache_;
  ScorePolicy policy_;
  RoutingObserver* routing_observer_ = nullptr;
  std::unique_ptr<WindowCodec> codec_;  // null: nothing is coded
  std::vector<CodeRaise> raises_;       // empty: codes have the bits that were asked for
  uint32_t threads_ = 1, prefill_chunk_ = 512;
  Isa isa_ = Isa::kScalar;
  std::unique_ptr<GgufFile> file_;
  Hyperparameters hyperparameters_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<CacheAttention> attention_;
  std::unique_ptr<ModelRunner> runner_;
  // Of the current step, kept for their capacity.
  std::vector<Token> tokens_;
  std::vector<Position> positions_;
  std::vector<uint32_t> logit_rows_;
  std::vector<BatchSlice> slices_;
};

}  // namespace

Result<std::unique_ptr<Engine>> Engine::Load(const EngineConfig& config, const ProgressFn& progress,
                                             const CancelFn& cancel) {
  return GgufEngine::Load(config, progress, cancel);
}

}  // namespace qevict
