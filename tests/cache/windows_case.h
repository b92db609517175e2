// What tests of the tiered cache share: codecs with simple tables, and policies that move windows
// about as no sensible one would.
#pragma once

#include <cmath>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "cache/kv_shape.h"
#include "codec/window_codec.h"
#include "core/geometry.h"
#include "policy/routing_policy.h"
#include "tests/support/random.h"

namespace qevict::test {

enum class KeyMeans { kZero, kRandom };

// Weights and scales of one, and RoPE angles as models have them. Heads may have K3/V2, K4/V2,
// K3/V4 and K4/V4.
inline std::unique_ptr<WindowCodec> MakeCodec(const KvShape& shape, const Geometry& geometry,
                                              KeyMeans means) {
  const uint32_t head_dim = shape.head_dim;
  WindowCodec::Config config{
      .formats = {{head_dim, 3, 2}, {head_dim, 4, 2}, {head_dim, 3, 4}, {head_dim, 4, 4}},
      .rope = {.head_dim = head_dim, .layout = RopePairs::Layout::kHalves, .angles = {}},
      .layers = shape.layers,
      .kv_heads = shape.kv_heads,
      .heads = {},
      .sinks = geometry.sinks,
      .omega = geometry.omega};
  for (uint32_t i = 0; i < head_dim / 2; ++i)
    config.rope.angles.push_back(std::pow(10000.0, -2.0 * i / head_dim));
  Random random(77);
  for (uint32_t i = 0; i < shape.layers * shape.kv_heads; ++i) {
    HeadTables tables{.weight = std::vector<float>(head_dim, 1.0f),
                      .mean = std::vector<float>(head_dim, 0.0f)};
    if (means == KeyMeans::kRandom) {
      for (float& m : tables.mean) m = random.Normal();
    }
    config.heads.push_back(std::move(tables));
  }
  return WindowCodec::Create(std::move(config)).value();
}

// Hands out tiers by lot: every event deals all windows anew, or lets most of them keep their tier.
// At times it leaves room unused. The lot depends on the seed, the number of the event and the
// window alone.
class ShufflingPolicy final : public RoutingPolicy {
 public:
  explicit ShufflingPolicy(uint64_t seed) : seed_(seed) {}

  void Route(std::span<const LedgerEntry> entries, TierCapacity capacity,
             RoutingDecision& decision) const override {
    ++event_;
    const uint64_t mode = Lot(0) % 4;
    const auto rank = [&](uint32_t i) {  // ascending: full, quantized, evicted
      const LedgerEntry& entry = entries[i];
      const uint64_t lot = Lot(1 + entry.window.value) % 1000;
      return std::pair(mode == 0 ? lot : uint64_t(entry.tier) * 800 + lot, entry.window);
    };
    std::vector<uint32_t>& order = decision.order;
    order.resize(entries.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::sort(order, {}, rank);
    const uint64_t full = capacity.full - (mode == 3 ? Lot(1u << 30) % (capacity.full + 1) : 0);
    const uint64_t quantized =
        capacity.quantized - (mode == 2 ? Lot(1u << 31) % (capacity.quantized / 4 + 1) : 0);
    decision.moves.clear();
    for (size_t place = 0; place < order.size(); ++place) {
      const Tier from = entries[order[place]].tier;
      const Tier to = place < full               ? Tier::kFull
                      : place < full + quantized ? Tier::kQuantized
                                                 : Tier::kEvicted;
      if (from != to) decision.moves.push_back({order[place], from, to});
    }
    std::ranges::sort(decision.moves, {}, &TierMove::entry);
  }

 private:
  uint64_t Lot(uint64_t of) const {
    return Random(seed_ ^ Random(event_ * 0x100000001u + of).Next()).Next();
  }

  uint64_t seed_;
  mutable uint64_t event_ = 0;
};

}  // namespace qevict::test
