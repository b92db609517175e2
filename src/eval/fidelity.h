// What a compressed cache does to a model's predictions. A text's first tokens are the context; the
// tokens behind it are fed one by one, whatever the model predicts, and each prediction is compared
// with that of the full cache.
//   a codec   the full cache's history is replaced by its decoded codes once the context is there
//   a cache   a sequence as the engine's own cache keeps it, from the first token on
// Everything is computed step by step by the same kernels, so equal caches differ by exactly 0.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/aligned_buffer.h"
#include "engine/engine.h"
#include "eval/history_codec.h"
#include "eval/prediction_distance.h"
#include "qevict/status.h"

namespace qevict {

struct FidelityConfig {
  uint32_t context_tokens = 2048;
  uint32_t decode_tokens = 256;
  Geometry geometry{};  // what of the context is history
  // The last token's successor counts too.
  uint64_t text_tokens() const { return uint64_t{context_tokens} + decode_tokens + 1; }
};

struct Fidelity {
  double bits = 16.0;    // per element: of the history (a codec), of all tokens (a cache)
  uint64_t bytes = 0;    // of the cache behind the last token; a codec's history counted as codes
  double share = 1.0;    // of an f16 cache of the same tokens
  double kl = 0.0;       // KL(full || this), nats, mean over the decoded tokens
  double top1 = 1.0;     // share of tokens whose likeliest successor is the full cache's
  double dlogppl = 0.0;  // log-perplexity of the text minus the full cache's
};

struct FidelityHooks {
  ProgressFn progress;  // of the call at hand
  CancelFn cancel;
};

class FidelityRun {
 public:
  // Reads the context with a full cache and keeps its predictions: decode_tokens * vocab floats.
  // `text` is borrowed. The engine must outlive the run and, for MeasureCodec, have a codec.
  // Errors: kInvalidArgument (the text is too short), kContextFull (the model is), kOutOfMemory
  // (before anything is read), those of Engine::Prefill.
  static Result<FidelityRun> Start(Engine& engine, const FidelityConfig& config,
                                   std::span<const Token> text, const FidelityHooks& hooks);

  Result<Fidelity> MeasureCodec(CodecChoice choice, const FidelityHooks& hooks);
  // Of Engine::NewSequence.
  Result<Fidelity> MeasureCache(const FidelityHooks& hooks) const;

 private:
  FidelityRun(Engine& engine, const FidelityConfig& config, std::span<const Token> text)
      : engine_(&engine), config_(config), text_(text) {}
  std::span<const Token> context() const { return text_.first(config_.context_tokens); }
  // Feeds the tokens behind the context; see(i, logits) after the i-th.
  template <typename See>
  Status Decode(Sequence& sequence, const FidelityHooks& hooks, const See& see) const;
  Status Compare(Sequence& sequence, const FidelityHooks& hooks, Fidelity& fidelity) const;
  Status ReturnToContext(const CancelFn& cancel);
  Status MakeRoom();
  void SaveHistory() const;
  void RestoreHistory() const;

  Engine* engine_;
  FidelityConfig config_;
  std::span<const Token> text_;
  AlignedBuffer predictions_;  // [decode_tokens, vocab] floats
  std::unique_ptr<Sequence> full_;
  AlignedBuffer history_;  // F16: keys, then values, of every (layer, KV head) that is rewritten
};

}  // namespace qevict
