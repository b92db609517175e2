#include "eval/fidelity.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/check.h"

namespace qevict {
namespace {

// Calls visit(keys, values, elements) with the f16 rows of the first `tokens` tokens of every KV
// head of a full sequence whose layer routing would review.
template <typename Visit>
void ForEachHead(SequenceKv& kv, uint32_t tokens, const Visit& visit) {
  const size_t rounded = WholeKeyBlocks(tokens);
  for (uint32_t l = 0; l < kv.shape().layers; ++l) {
    if (kv.shape().is_swa(l)) continue;
    for (uint32_t h = 0; h < kv.shape().kv_heads; ++h) {
      const KvRows rows = kv.Rows(LayerId(l), KvHeadId(h));
      visit(rows.k(), rows.v(), rounded * kv.shape().head_dim);
    }
  }
}

// Of one step: `done` tokens of the whole, of which `before` were done before the step.
ProgressFn Within(const ProgressFn& progress, uint32_t before, uint32_t total) {
  return [&progress, before, total](uint32_t done, uint32_t /*total*/) {
    if (progress) progress(before + done, total);
  };
}

Status CheckLengths(const Engine& engine, const FidelityConfig& config, size_t text_tokens) {
  if (config.decode_tokens == 0 || config.context_tokens == 0) {
    return Fail(ErrorCode::kInvalidArgument, "context and decoded tokens must not be 0");
  }
  const uint32_t room = engine.hyperparameters().context_train;
  if (config.text_tokens() - 1 > room) {
    return Fail(ErrorCode::kContextFull,
                "a context of " + std::to_string(config.context_tokens) + " and " +
                    std::to_string(config.decode_tokens) + " tokens behind it exceed the " +
                    std::to_string(room) + " that the model was made for; lower --context");
  }
  if (text_tokens < config.text_tokens()) {
    return Fail(ErrorCode::kInvalidArgument,
                "the text has " + std::to_string(text_tokens) + " tokens, and " +
                    std::to_string(config.text_tokens()) +
                    " are needed; give a longer text or lower --context");
  }
  return {};
}

}  // namespace

Result<FidelityRun> FidelityRun::Start(Engine& engine, const FidelityConfig& config,
                                       std::span<const Token> text, const FidelityHooks& hooks) {
  QEVICT_RETURN_IF_ERROR(CheckLengths(engine, config, text.size()));
  FidelityRun run(engine, config, text.first(config.text_tokens()));
  const size_t vocab = engine.hyperparameters().vocab;
  const uint32_t capacity = config.context_tokens + config.decode_tokens;
  QEVICT_ASSIGN_OR_RETURN(run.full_, engine.NewFullSequence(capacity));
  QEVICT_RETURN_IF_ERROR(run.MakeRoom());
  QEVICT_RETURN_IF_ERROR(engine.Prefill(*run.full_, run.context(), nullptr,
                                        Within(hooks.progress, 0, capacity), hooks.cancel));
  run.SaveHistory();
  const FidelityHooks decode_hooks{Within(hooks.progress, config.context_tokens, capacity),
                                   hooks.cancel};
  auto* predictions = run.predictions_.as<float>();
  QEVICT_RETURN_IF_ERROR(
      run.Decode(*run.full_, decode_hooks, [&](uint32_t i, const std::vector<float>& logits) {
        std::ranges::copy(logits, predictions + i * vocab);
      }));
  return run;
}

// Before the context is read, which takes long.
Status FidelityRun::MakeRoom() {
  const auto allocate = [](AlignedBuffer& buffer, size_t bytes,
                           const std::string& advice) -> Status {
    auto made = AlignedBuffer::Allocate(bytes);
    if (!made) return Fail(made.error().code, made.error().message + advice);
    buffer = std::move(*made);
    return {};
  };
  const size_t vocab = engine_->hyperparameters().vocab;
  QEVICT_RETURN_IF_ERROR(allocate(
      predictions_, config_.decode_tokens * vocab * sizeof(float),
      ", for the predictions of " + std::to_string(config_.decode_tokens) + " tokens; lower -n"));
  size_t bytes = 0;
  ForEachHead(full_->kv(), config_.context_tokens,
              [&](F16*, F16*, size_t elements) { bytes += 2 * elements * sizeof(F16); });
  return allocate(history_, bytes,
                  ", for a second copy of a context of " + std::to_string(config_.context_tokens) +
                      " tokens; lower --context");
}

template <typename See>
Status FidelityRun::Decode(Sequence& sequence, const FidelityHooks& hooks, const See& see) const {
  std::vector<float> logits;
  for (uint32_t i = 0; i < config_.decode_tokens; ++i) {
    BatchItem item{.sequence = &sequence,
                   .tokens = text_.subspan(config_.context_tokens + i, 1),
                   .logits_out = &logits};
    QEVICT_RETURN_IF_ERROR(engine_->Run({&item, 1}, hooks.cancel));
    see(i, logits);
    if (hooks.progress) hooks.progress(i + 1, config_.decode_tokens);
  }
  return {};
}

Status FidelityRun::Compare(Sequence& sequence, const FidelityHooks& hooks,
                            Fidelity& fidelity) const {
  const size_t vocab = engine_->hyperparameters().vocab;
  double kl = 0.0, log_loss_change = 0.0;
  uint32_t same = 0;
  QEVICT_RETURN_IF_ERROR(Decode(sequence, hooks, [&](uint32_t i, const std::vector<float>& logits) {
    const PredictionDistance distance =
        ComparePredictions(std::span(predictions_.as<const float>() + i * vocab, vocab), logits,
                           text_[config_.context_tokens + i + 1]);
    kl += distance.kl;
    log_loss_change += distance.log_loss_change;
    same += distance.same_top ? 1 : 0;
  }));
  fidelity.kl = kl / config_.decode_tokens;
  fidelity.dlogppl = log_loss_change / config_.decode_tokens;
  fidelity.top1 = double(same) / config_.decode_tokens;
  return {};
}

void FidelityRun::SaveHistory() const {
  F16* next = history_.as<F16>();
  ForEachHead(full_->kv(), config_.context_tokens, [&](F16* keys, F16* values, size_t elements) {
    next = std::copy_n(values, elements, std::copy_n(keys, elements, next));
  });
}

void FidelityRun::RestoreHistory() const {
  const F16* next = history_.as<F16>();
  ForEachHead(full_->kv(), config_.context_tokens, [&](F16* keys, F16* values, size_t elements) {
    std::copy_n(next, elements, keys);
    std::copy_n(next + elements, elements, values);
    next += 2 * elements;
  });
}

// The full sequence as it was behind the context. A sliding-window layer cannot go back, and the
// context is read again.
Status FidelityRun::ReturnToContext(const CancelFn& cancel) {
  if (engine_->hyperparameters().swa_window != 0) {
    QEVICT_RETURN_IF_ERROR(full_->Truncate(0));
    return engine_->Prefill(*full_, context(), nullptr, {}, cancel);
  }
  QEVICT_RETURN_IF_ERROR(full_->Truncate(config_.context_tokens));
  RestoreHistory();
  return {};
}

Result<Fidelity> FidelityRun::MeasureCodec(CodecChoice choice, const FidelityHooks& hooks) {
  QEVICT_CHECK(engine_->codec() != nullptr);
  QEVICT_RETURN_IF_ERROR(ReturnToContext(hooks.cancel));
  SequenceKv& kv = full_->kv();
  const KvShape& shape = kv.shape();
  const Geometry& geometry = config_.geometry;
  QEVICT_ASSIGN_OR_RETURN(HistoryCodec codec,
                          HistoryCodec::Create(choice, *engine_->codec(), shape, geometry));
  QEVICT_RETURN_IF_ERROR(codec.RewriteHistory(kv));
  Fidelity fidelity;
  fidelity.bits = choice.bits_per_element(shape.head_dim, geometry.omega);
  const uint64_t full_bytes = FullCacheBytes(shape, full_->capacity_tokens());
  const uint64_t coded_bytes = uint64_t{geometry.history_windows(config_.context_tokens)} *
                               geometry.omega * RoutedLayers(shape) * shape.layer_token_bytes();
  fidelity.bytes =
      full_bytes - coded_bytes + uint64_t(double(coded_bytes) * fidelity.bits / 16.0 + 0.5);
  fidelity.share = double(fidelity.bytes) / double(full_bytes);
  QEVICT_RETURN_IF_ERROR(Compare(*full_, hooks, fidelity));
  return fidelity;
}

Result<Fidelity> FidelityRun::MeasureCache(const FidelityHooks& hooks) const {
  const uint32_t capacity = full_->capacity_tokens();
  QEVICT_ASSIGN_OR_RETURN(const auto sequence, engine_->NewSequence(capacity));
  QEVICT_RETURN_IF_ERROR(engine_->Prefill(*sequence, context(), nullptr,
                                          Within(hooks.progress, 0, capacity), hooks.cancel));
  const FidelityHooks decode_hooks{Within(hooks.progress, config_.context_tokens, capacity),
                                   hooks.cancel};
  Fidelity fidelity;
  QEVICT_RETURN_IF_ERROR(Compare(*sequence, decode_hooks, fidelity));
  const KvUsage usage = sequence->kv_usage();
  fidelity.bytes = usage.used_bytes;
  fidelity.share = double(usage.used_bytes) / double(usage.full_f16_bytes);
  fidelity.bits = 16.0 * fidelity.share;
  return fidelity;
}

}  // namespace qevict
