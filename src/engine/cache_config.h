// What a user chooses about a sequence's cache.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cache/cache_plan.h"
#include "cache/head_windows.h"
#include "core/geometry.h"
#include "policy/scoring.h"
#include "qevict/status.h"

namespace qevict {

// full     every token full, in f16 or q8 (KvType)
// quant    the whole history as codes; a budget that is too small for them is refused
// evict    nothing but full tokens: the windows with the lowest scores leave
// qevict   full windows, codes and evicted windows by the attention of all queries so far, as
//          published, but for decoded tokens that all vote (ScoreWhen::kEvent is the published way)
// auto     the whole history as codes while they fit, then the lowest scores leave; codes of more
//          bits where the budget has bytes to spare, full where it allows everything full
enum class CachePolicy { kFull, kQuant, kEvict, kQevict, kAuto };
std::string_view CachePolicyName(CachePolicy policy);
// Error kInvalidArgument, listing the names.
Result<CachePolicy> ParseCachePolicy(std::string_view name);

// How tokens that are not coded are kept: f16, or q8, int8 with a scale per 32 channels at about
// half the bytes (docs/formats/full-tier-q8.md). Error kInvalidArgument.
Result<KvType> ParseKvType(std::string_view name);

// A share of the f16 cache of the whole context, or bytes.
struct KvBudget {
  double share = 0.0;  // in (0, 1]; 0: bytes say it
  uint64_t bytes = 0;
  // The whole f16 cache is no limit: slots in whole blocks take a little more than its tokens.
  uint64_t LimitBytes(uint64_t full_f16_bytes) const {
    if (share >= 1.0) return UINT64_MAX;
    return share > 0.0 ? uint64_t(share * double(full_f16_bytes)) : bytes;
  }
};
// "20%", "0.5%", "512MiB", "1GB", "1.5GiB", "1000000". Error kInvalidArgument.
Result<KvBudget> ParseKvBudget(std::string_view text);

// How a prompt that is longer than the full tier reaches the cache: exactly as a full cache would,
// one layer after another; or piece by piece (Engine::Prefill), each routed before the next is
// read, which needs no more than a piece beside the budget and whose time grows with the prompt,
// not with its square. A prompt that follows others in its sequence is always streamed.
enum class PrefillMode { kExact, kStream };

// What differs from the scoring that the policy comes with.
struct ScoringChoice {
  std::optional<ScoreWhen> when = {};
  std::optional<uint32_t> prior_tokens = {};
  std::optional<GroupMass> group = {};
  bool per_voter = false, value_weighted = false;
};
// "all" or a number of tokens. Error kInvalidArgument.
Result<uint32_t> ParsePriorTokens(std::string_view text);
// "step, prior of 32 tokens, mean" and the like.
std::string ScoringName(const ScoringConfig& scoring);

struct CacheConfig {
  CachePolicy policy = CachePolicy::kAuto;
  std::optional<KvBudget> budget = {};  // none: as much as the policy needs
  KvType kv_type = KvType::kF16;
  Geometry geometry = {};
  // 2, 3, 4 and 1, 2, 4. Left open: 3 and 2, or for `auto` more of them where the budget has bytes
  // to spare.
  std::optional<uint32_t> key_bits = {}, value_bits = {};
  float full_share = 0.3f;  // qevict: of the history's bytes, for full windows
  Promotion promotion = Promotion::kExpand;
  ScoringChoice scoring_choice = {};
  PrefillMode prefill = PrefillMode::kExact;
  // Where the tables of the codec are kept, one file per model; empty: measured at every load.
  std::string tables_folder = {};

  Status Validate() const;
  // qevict scores by all queries of a prompt, the others by its last ones.
  ScoringConfig scoring() const;
  uint32_t least_key_bits() const { return key_bits.value_or(3); }
  uint32_t least_value_bits() const { return value_bits.value_or(2); }
  bool raises_bits() const { return policy == CachePolicy::kAuto && !key_bits && !value_bits; }
  // Whether routing may have to choose which windows stay.
  bool chooses() const {
    return budget.has_value() && policy != CachePolicy::kFull && policy != CachePolicy::kQuant;
  }
  // Whether a sequence may hold codes, for which the codec must be fitted to the model.
  bool codes() const { return tiered() && policy != CachePolicy::kEvict; }
  // Whether a sequence may hold less than every token full.
  bool tiered() const {
    return policy == CachePolicy::kQuant || (policy != CachePolicy::kFull && budget.has_value());
  }
};

}  // namespace qevict
