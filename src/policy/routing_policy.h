// What routing decides on, and the interface of those who decide: they see scores and capacities,
// return moves, and never touch bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qevict/ids.h"

namespace qevict {

enum class Tier : uint8_t { kFull, kQuantized, kEvicted };  // ordered: fewer bytes to the right

// A window of the history of one (layer, KV head).
struct LedgerEntry {
  WindowId window;
  Tier tier = Tier::kFull;
  float score = 0.0f;
};

// Windows that one (layer, KV head) has room for.
struct TierCapacity {
  uint32_t full = 0, quantized = 0;
};

// A demotion when from < to, a promotion when from > to.
struct TierMove {
  uint32_t entry = 0;  // index into the entries that were routed
  Tier from = Tier::kFull, to = Tier::kFull;
  friend bool operator==(const TierMove&, const TierMove&) = default;
};

// What a policy answers, and its working room. With Reserve(n) done, routing n entries allocates
// nothing and so cannot fail.
struct RoutingDecision {
  std::vector<TierMove> moves;  // ascending by entry
  std::vector<uint32_t> order;  // for the policy's own use

  void Reserve(size_t entries) {
    moves.reserve(entries);
    order.reserve(entries);
  }
};

class RoutingPolicy {
 public:
  virtual ~RoutingPolicy() = default;
  // Replaces `decision` by the moves that lead from the entries' tiers to tiers within `capacity`.
  // Deterministic in the set of entries, whatever their order.
  virtual void Route(std::span<const LedgerEntry> entries, TierCapacity capacity,
                     RoutingDecision& decision) const = 0;
};

// Ranks by score: the best fill the full tier, the next the quantized tier, the rest are evicted.
// Equal scores: the newer window wins. Linear in the entries on average.
class ScorePolicy final : public RoutingPolicy {
 public:
  void Route(std::span<const LedgerEntry> entries, TierCapacity capacity,
             RoutingDecision& decision) const override;
};

}  // namespace qevict
