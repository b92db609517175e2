#include "policy/routing_policy.h"

#include <algorithm>
#include <numeric>

namespace qevict {

void ScorePolicy::Route(std::span<const LedgerEntry> entries, TierCapacity capacity,
                        RoutingDecision& decision) const {
  std::vector<uint32_t>& order = decision.order;
  order.resize(entries.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto better = [&entries](uint32_t a, uint32_t b) {
    const LedgerEntry &left = entries[a], &right = entries[b];
    return left.score != right.score ? left.score > right.score : left.window > right.window;
  };
  // Only which part an entry falls into matters, so two partitions do where a sort would cost more.
  const size_t full = std::min<size_t>(capacity.full, order.size());
  const size_t kept = std::min<size_t>(full + capacity.quantized, order.size());
  const auto at = [&order](size_t rank) { return order.begin() + ptrdiff_t(rank); };
  if (kept < order.size()) std::nth_element(at(0), at(kept), at(order.size()), better);
  if (full < kept) std::nth_element(at(0), at(full), at(kept), better);

  decision.moves.clear();
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const Tier to = rank < full ? Tier::kFull : rank < kept ? Tier::kQuantized : Tier::kEvicted;
    const Tier from = entries[order[rank]].tier;
    if (from != to) decision.moves.push_back({order[rank], from, to});
  }
  std::ranges::sort(decision.moves, {}, &TierMove::entry);
}

}  // namespace qevict
