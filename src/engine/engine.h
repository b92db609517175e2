// A model ready to run, and sequences of tokens that run through it. One engine does one thing at a
// time: NewSequence, NewFullSequence, Run and Prefill must not overlap; the rest is const.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/sequence_kv.h"
#include "core/cancel.h"
#include "engine/cache_config.h"
#include "model/hyperparameters.h"
#include "model/products.h"
#include "model/token.h"
#include "model/tokenizer.h"
#include "qevict/status.h"

namespace qevict {

// fused      kernels that read full tokens and codes as they are stored
// reference  every KV head laid out in f32 and attended by the definition, to judge the fused one;
//            slow
enum class AttentionKind { kFused, kReference };

struct EngineConfig {
  std::string model_path;
  uint32_t threads = 0;          // 0: one per physical core that the process may use
  uint32_t prefill_chunk = 512;  // tokens per prefill step, 1 .. 4096
  CacheConfig cache = {};
  AttentionKind attention = AttentionKind::kFused;
  Products products = Products::kFastest;
  // Fits the codec to the model also where a tiered cache holds no codes: for Engine::codec().
  bool fit_codec = false;
  // Told what routing does in the engine's tiered sequences; must outlive them. Null: nobody.
  RoutingObserver* routing_observer = nullptr;
};

// Bytes that a sequence's cache holds: what the allocator handed out.
struct KvUsage {
  uint64_t limit_bytes = 0;  // never exceeded
  uint64_t used_bytes = 0;   // now
  uint64_t peak_bytes = 0;   // since the sequence was made
  // What an f16 cache of every token in every layer would take, for comparison.
  uint64_t full_f16_bytes = 0;
  KvType kv_type = KvType::kF16;  // of what full_bytes hold
  // used_bytes by what they hold.
  uint64_t full_bytes = 0, quantized_bytes = 0, ledger_bytes = 0;
  double code_bits = 0.0;  // per element of a code, mean over all heads; 0: nothing is ever coded
  // Full tokens of a prompt on their way into the tiers, beside the limit: the most there ever
  // were.
  uint64_t staging_peak_bytes = 0;
  TierStats tiers;
};

// One conversation or document with its own cache. Made by an engine, which must outlive it.
// Belongs to one thread at a time.
class Sequence {
 public:
  virtual ~Sequence() = default;
  virtual uint32_t size_tokens() const = 0;  // committed tokens
  virtual uint32_t capacity_tokens() const = 0;
  virtual std::span<const Token> tokens() const = 0;
  virtual KvUsage kv_usage() const = 0;
  // Forgets all tokens from `size_tokens` on. Errors: kInvalidArgument (it has fewer), kUnsupported
  // (a sliding-window layer has already forgotten what it needs, or routing may have moved the
  // tokens, which can only all be forgotten), and then nothing has changed.
  virtual Status Truncate(uint32_t size_tokens) = 0;
  // What the sequence holds, for those who measure it.
  virtual SequenceKv& kv() = 0;
};

enum class LogitRows { kNone, kLast, kAll };

struct BatchItem {
  Sequence* sequence = nullptr;
  std::span<const Token> tokens;  // appended to the sequence
  LogitRows logits = LogitRows::kLast;
  std::vector<float>* logits_out =
      nullptr;  // [rows, vocab], row-major; may be null when logits is kNone
};

// done and total in tokens.
using ProgressFn = std::function<void(uint32_t done, uint32_t total)>;

class Engine {
 public:
  // A model that is first used with a cache of codes reads a built-in text so that the codec can be
  // fitted to it; `progress` shows how far that is and `cancel` ends it. Errors: kCancelled,
  // kNotFound, kBadFile, kUnsupported, kOutOfMemory, kInvalidArgument (QEVICT_ISA, counts, cache),
  // kIo, kInternal.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> Load(const EngineConfig& config,
                                                            const ProgressFn& progress = {},
                                                            const CancelFn& cancel = {});
  virtual ~Engine() = default;

  virtual const Hyperparameters& hyperparameters() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  virtual uint32_t threads() const = 0;
  // "avx2" and the like: the level of our kernels.
  virtual std::string_view isa_name() const = 0;

  // A sequence that can hold `capacity_tokens`. Errors: kInvalidArgument (0, or more than the
  // model's training context), kBudgetExceeded (with the smallest budget that works), kOutOfMemory
  // (with the bytes asked for and the flag that lowers them).
  [[nodiscard]] virtual Result<std::unique_ptr<Sequence>> NewSequence(uint32_t capacity_tokens) = 0;
  // Every token in f16, whatever cache the engine was loaded with. Errors as above.
  [[nodiscard]] virtual Result<std::unique_ptr<Sequence>> NewFullSequence(
      uint32_t capacity_tokens) = 0;
  // Null when the engine was loaded without one that is fitted to the model.
  virtual const WindowCodec* codec() const = 0;

  // One batch through the model: every item's tokens are appended to its sequence. A sequence may
  // occur once. On any error no sequence has changed. Errors: kContextFull, kInvalidArgument (token
  // outside the vocabulary, an item of 0 or of more than prefill_chunk tokens), kCancelled,
  // kOutOfMemory, kBudgetExceeded, kBadFile (logits that are no numbers), kInternal.
  virtual Status Run(std::span<BatchItem> batch, const CancelFn& cancel) = 0;

  // A long prompt; `logits_out` receives the last token's logits and may be null. It passes through
  // the model in pieces, each of which is committed as a whole: all of it where the cache lets it
  // and weights are unpacked for it or CacheConfig::prefill asks for it; else, of a prompt that is
  // streamed, four chunks of prefill_chunk tokens, or one where ggml multiplies. When cancelled,
  // the pieces that were done stay in the sequence. `progress` and `cancel` may be empty. Errors:
  // kInvalidArgument (empty), kContextFull, and those of Run.
  virtual Status Prefill(Sequence& sequence, std::span<const Token> tokens,
                         std::vector<float>* logits_out, const ProgressFn& progress,
                         const CancelFn& cancel) = 0;
  Status Prefill(Sequence& sequence, std::span<const Token> tokens,
                 std::vector<float>* logits_out) {
    return Prefill(sequence, tokens, logits_out, {}, {});
  }
};

}  // namespace qevict
