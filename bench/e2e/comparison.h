// Two engines on the same tokens of the same model, each in a process of its own, taking turns so
// that both see the same machine: prefill A, prefill B, then decode A, decode B, again and again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/e2e/worker.h"
#include "core/cancel.h"
#include "model/token.h"
#include "qevict/status.h"

namespace qevict::bench {

inline constexpr uint32_t kMostRepeatedPrefill = 8192;  // longer prompts run once

struct ComparisonConfig {
  std::vector<std::string> worker_command;  // of our own engine
  std::vector<std::string> peer_command;    // PeerCommand(); unused without a peer
  std::string model_path;
  std::string peer;      // one of kPeers, or empty: only ours
  uint32_t context = 0;  // tokens of the prompt; 0: one token
  uint32_t decode_tokens = 64;
  uint32_t repeat = 5;  // rounds of decode blocks, and of prefill up to kMostRepeatedPrefill
  uint32_t threads = 1;
  uint32_t chunk_tokens = 0, peer_chunk_tokens = 0;  // 0: the engine's own best
  CacheConfig cache = {};                            // ours
  DecodeEnd decode_end = DecodeEnd::kRewind;
  std::vector<Token> tokens;  // at least CapacityTokens() of them

  uint32_t prompt_tokens() const { return context == 0 ? 1 : context; }
  uint32_t CapacityTokens() const;  // what a sequence needs room for
};

// Tokens per second, one value per round. `peer` is empty without one.
struct Rounds {
  std::vector<double> ours, peer;
  std::vector<double> Ratios() const;  // ours / peer, round by round
};
double Median(std::vector<double> values);  // of at least one

struct EngineReport {
  WorkerReport worker;
  // CPU time used while the other engine had its turn, as a share of one core: it must be near 0,
  // or the engines disturb each other. nullopt: no turn of the other was long enough to tell.
  std::optional<double> idle_cpu_share;
};

struct Comparison {
  Rounds prefill, decode;
  EngineReport ours;
  std::optional<EngineReport> peer;
  bool same_next_token = true;  // greedy, after the prompt
};

// `turn` of `turns` begins; `what` is text such as "llama.cpp: prefill".
using TurnFn = std::function<void(uint32_t turn, uint32_t turns, const std::string& what)>;

// Errors: those of the engines; kCancelled.
[[nodiscard]] Result<Comparison> RunComparison(const ComparisonConfig& config,
                                               const TurnFn& on_turn, const CancelFn& cancel);

}  // namespace qevict::bench
