// How a byte budget is split before a sequence holds its first token. Pure arithmetic: every
// (layer, KV head) gets the same room in tokens, and the sum of all that is ever allocated stays
// within the limit.
#pragma once

#include <span>
#include <vector>

#include "cache/kv_shape.h"
#include "core/geometry.h"
#include "kernels/code_layout.h"
#include "kernels/kv_layout.h"
#include "policy/routing_policy.h"
#include "policy/scoring.h"
#include "qevict/status.h"

namespace qevict {

enum class TierSplit {
  kFullOnly,      // every token in the full tier
  kCodeHistory,   // history is quantized; evicted where the budget cannot hold all codes
  kCodeAll,       // the same, but a budget that cannot hold all codes is refused
  kFullHistory,   // history stays full; evicted where the budget cannot hold it
  kFullAndCodes,  // a share of the history's bytes for full windows, the rest for codes
};

// Four bits instead of fewer for one side of a head's codes. `head` is a place in
// [routed layers, kv_heads].
struct CodeRaise {
  enum class Side : uint8_t { kKey, kValue };
  uint32_t head = 0;
  Side side = Side::kKey;
  friend constexpr bool operator==(const CodeRaise&, const CodeRaise&) = default;
};
constexpr void Raise(CodeFormat& format, CodeRaise::Side side) {
  (side == CodeRaise::Side::kKey ? format.key_bits : format.value_bits) = 4;
}

struct PlanRequest {
  TierSplit split = TierSplit::kCodeHistory;
  float full_share = 0.3f;  // of the history's bytes, for kFullAndCodes
  Geometry geometry = {};
  uint32_t key_bits = 3, value_bits = 2;
  ScoringConfig scoring = {};
  uint32_t capacity_tokens = 0;   // prompt and answer
  uint32_t max_batch_tokens = 0;  // sizes the rings of sliding-window layers
  uint64_t limit_bytes = 0;
  KvType kv_type = KvType::kF16;  // of the full tier
  // Of kCodeHistory: where the whole history fits, as many of these as fit too, in their order.
  std::span<const CodeRaise> raises = {};
};

struct CachePlan {
  uint64_t limit_bytes = 0;
  KvType kv_type = KvType::kF16;    // of the full tier and of rings
  TierCapacity capacity;            // history windows per (layer, KV head)
  uint32_t retained_windows = 0;    // codes kept of windows that are full again
  uint32_t full_slots = 0;          // full tokens per (layer, KV head), a multiple of 16
  std::vector<CodeFormat> formats;  // of each head's codes, [routed layers, kv_heads]
  // At most; their sum is within the limit.
  uint64_t full_bytes = 0;    // full tokens of routed layers, rings of the others
  uint64_t ledger_bytes = 0;  // scores, window ids, tables of pages
  uint64_t code_bytes = 0;    // pages of codes, in slabs as allocated
  uint64_t total_bytes() const { return full_bytes + ledger_bytes + code_bytes; }

  uint32_t code_windows() const { return capacity.quantized + retained_windows; }
  // Per element, the mean of keys and values over all heads, scales and padding of rows included; 0
  // when nothing is coded.
  double code_bits() const;
};

// The different formats of a plan's heads, and how many heads have each.
struct FormatCount {
  CodeFormat format;
  uint32_t heads = 0;
};
std::vector<FormatCount> CountFormats(std::span<const CodeFormat> formats);

// What the ledger holds of a window.
struct WindowRecord {
  WindowId window;
  float score = 0.0f;
};
// The ledger of one (layer, KV head): its pages of codes, then records of full windows and of
// codes.
constexpr uint64_t LedgerHeadBytes(uint64_t full_windows, uint64_t code_windows, uint64_t pages) {
  return pages * sizeof(uint8_t*) + (full_windows + code_windows) * sizeof(WindowRecord);
}
// What scoring keeps of every window, evicted ones included: voters before it, and of each (layer,
// KV head) the mean of its values.
constexpr uint64_t ScoringBytes(const ScoringConfig& scoring, uint64_t windows, uint64_t heads) {
  return windows * ((scoring.per_voter ? sizeof(uint32_t) : 0) +
                    (scoring.value_weighted ? heads * sizeof(F16) : 0));
}
inline constexpr uint32_t kSlabPages = 64;

// Pages of codes that `windows` windows of one (layer, KV head) take.
constexpr uint32_t CodePages(uint32_t windows, uint32_t omega) {
  return uint32_t((uint64_t{windows} * omega + kCodePageTokens - 1) / kCodePageTokens);
}
// Of `pages` pages of one format as they are allocated, in slabs of which the last has what is
// left.
uint64_t CodePoolBytes(const CodeFormat& format, uint64_t pages);

// Layers that routing reviews: all but those with sliding-window attention.
uint32_t RoutedLayers(const KvShape& shape);
// Slots that one KV head of a sliding-window layer keeps.
uint32_t RingSlots(const KvShape& shape, uint32_t capacity_tokens, uint32_t max_batch_tokens);
// Keys and values of one layer of an untiered cache: all tokens, or a ring, in whole blocks.
uint64_t LayerBytes(const KvShape& shape, LayerId layer, uint32_t capacity_tokens,
                    uint32_t max_batch_tokens, KvType type = KvType::kF16);
// A cache of every token in every layer; a budget in per cent refers to the f16 one.
uint64_t FullCacheBytes(const KvShape& shape, uint32_t capacity_tokens, KvType type = KvType::kF16);

// The smallest limit with which TierSplit::kCodeAll works.
uint64_t CodeAllBytes(const KvShape& shape, const PlanRequest& request);

// Errors: kInvalidArgument (geometry), kBudgetExceeded with the smallest budget that works.
Result<CachePlan> PlanCache(const KvShape& shape, const PlanRequest& request);

}  // namespace qevict
