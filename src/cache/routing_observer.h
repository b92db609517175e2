// Who wants to know what routing did: told of every routing event of the sequences it was given to,
// in the thread that commits, in an order that does not depend on the number of threads.
#pragma once

#include <cstdint>
#include <span>

#include "policy/routing_policy.h"
#include "qevict/ids.h"

namespace qevict {

class SequenceKv;

// A window that changed its tier, and the score with which it was reviewed.
struct WindowMove {
  WindowId window;
  Tier from = Tier::kFull, to = Tier::kFull;
  float score = 0.0f;
};

struct TierCounts {
  uint64_t full = 0, quantized = 0, evicted = 0;  // windows of the history
};

// One review of the history of all heads: what a batch of tokens, or a prompt, led to.
struct SequenceReview {
  uint32_t sequence = 0;         // as OnSequence named it
  uint32_t position_tokens = 0;  // of the sequence, the batch's included
  uint32_t batch_tokens = 0;     // 1: a decoded token
  uint32_t history_windows = 0;  // of each head
  TierCounts windows;            // over all heads
  uint64_t encoded = 0;          // windows that got a code
  uint64_t used_bytes = 0, limit_bytes = 0;
  double seconds = 0.0;  // of routing alone, from the end of the event before
};

// Called from commits, which cannot fail: an observer that runs out of room keeps that to itself
// until it is asked. Events of several sequences do not interleave: an engine commits one after
// another.
class RoutingObserver {
 public:
  virtual ~RoutingObserver() = default;
  // A sequence begins. The number that it is to have in its events.
  virtual uint32_t OnSequence(const SequenceKv& kv) noexcept = 0;
  // What the event moved in one (layer, KV head), for every head with a move, in order of layers
  // and heads; OnReview follows. `moves` is valid during the call.
  virtual void OnMoves(LayerId layer, KvHeadId kv_head,
                       std::span<const WindowMove> moves) noexcept = 0;
  virtual void OnReview(const SequenceReview& review) noexcept = 0;
  // A prompt was given up: what was moved since the last event did not happen.
  virtual void OnAbandon() noexcept = 0;
  // The sequence was emptied and starts anew.
  virtual void OnClear(uint32_t sequence) noexcept = 0;
};

}  // namespace qevict
