// The windows of one (layer, KV head) of a routed layer: the ledger, and the moves between tiers.
// A window in place p has the full-tier slots [sinks + p omega, sinks + (p + 1) omega); the open
// window comes behind the last place. Code i has the token slots [i omega, (i + 1) omega) of the
// head's pages; codes that attention reads come first, then those kept of windows that are full
// again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/cache_plan.h"
#include "cache/kv_rows.h"
#include "cache/page_pool.h"
#include "codec/window_codec.h"
#include "core/geometry.h"
#include "kernels/kv_layout.h"
#include "policy/routing_policy.h"
#include "policy/scoring.h"
#include "qevict/ids.h"

namespace qevict {

// What a window's promotion does: decode the code into the full tier, or go on attending the code.
enum class Promotion { kExpand, kPin };

// Working room of routing events, shared by all heads of a sequence.
struct RoutingScratch {
  std::vector<WindowRecord> places, promoted;
  std::vector<LedgerEntry> entries;
  std::vector<uint32_t> entry_place;  // of an entry of the full tier
  RoutingDecision decision;
  std::vector<uint8_t> page;  // one page, for swapping codes
  std::vector<float> rows;    // mu, key, value

  // So that an event with this many windows in a head of this format allocates nothing. Room that
  // is there stays.
  void Reserve(size_t windows, const CodeFormat& format);
};

class HeadWindows {
 public:
  // Arrays of the ledger, owned by the sequence.
  struct Storage {
    std::span<uint8_t*> pages;
    std::span<WindowRecord> full, codes;
  };
  // Codec and pool are borrowed, and not used where nothing is coded.
  struct Context {
    Geometry geometry;
    CodeFormat format;  // of the head's codes; its head_dim counts in any case
    const WindowCodec* codec = nullptr;
    PagePool* pool = nullptr;  // of pages of that format
    LayerId layer;
    KvHeadId kv_head;
  };
  HeadWindows(const Storage& storage, const Context& context)
      : storage_(storage), context_(context) {}

  // From the empty head on, a window's score is weighted by the mean |v| of the values that it came
  // with, kept in `value_means` by window id. Owned by the sequence.
  void WeightByValues(std::span<F16> value_means) { value_means_ = value_means; }

  // Full tokens that the head holds of a sequence of `size` tokens.
  uint32_t FullTokens(uint32_t size) const {
    const Geometry& g = context_.geometry;
    return g.sink_tokens(size) + full_ * g.omega + g.open_tokens(size);
  }
  std::span<const WindowRecord> full() const { return storage_.full.first(full_); }
  std::span<const WindowRecord> attended() const { return storage_.codes.first(attended_); }
  std::span<const WindowRecord> retained() const {
    return storage_.codes.subspan(attended_, retained_);
  }
  uint32_t omega() const { return context_.geometry.omega; }
  const CodeFormat& format() const { return context_.format; }
  // Preconditions: the head may hold codes.
  const WindowCodec& codec() const { return *context_.codec; }
  const HeadCodec& head_codec() const {
    return context_.codec->head(context_.layer, context_.kv_head, context_.format);
  }
  const uint8_t* const* pages() const { return storage_.pages.data(); }
  uint32_t page_count() const { return page_count_; }
  // Pages beyond those it has that `windows` more codes would need.
  uint32_t PagesFor(uint32_t windows) const;

  struct Event {
    uint32_t old_tokens = 0, new_tokens = 0;  // of the sequence
    TierCapacity capacity;
    Promotion promotion = Promotion::kExpand;
    const RoutingPolicy* policy = nullptr;
    KvRows rows;  // the head's full tier; new tokens stand behind the old ones
    // Attention that the batch's queries paid, to be added to the scores: of each place, complete
    // windows and then the open one, and of each attended code. Null: none.
    const float* full_mass = nullptr;
    const float* code_mass = nullptr;
    MassPooling pooling = MassPooling::kNone;
    // By window id: voters before its first token. Scores are divided by the number of the others;
    // empty: they are not.
    std::span<const uint32_t> voters_before = {};
    uint32_t voters = 0;  // those of this batch included
  };
  struct Counts {
    uint32_t demotions = 0, promotions = 0, evictions = 0, encoded = 0;
  };
  // Takes the windows that became complete into the ledger, and reviews the history if it has
  // grown. Precondition: the pool holds the pages that it may need, and `scratch` room for its
  // windows.
  Counts Commit(const Event& event, RoutingScratch& scratch) noexcept;

  // Back to the empty sequence.
  void Clear() noexcept;

 private:
  uint32_t codes() const { return attended_ + retained_; }
  void AddMasses(const Event& event, RoutingScratch& scratch) noexcept;
  void KeepValueMeans(const Event& event, uint32_t first_new, uint32_t completed) noexcept;
  // What routing ranks: the score by the options that do not depend on when masses come.
  float RankedScore(const Event& event, const WindowRecord& record) const noexcept;
  void Rank(const Event& event, RoutingScratch& scratch) const noexcept;
  void MoveCodes(const Event& event, RoutingScratch& scratch, Counts& counts) noexcept;
  void LeaveFullTier(const Event& event, RoutingScratch& scratch, Counts& counts) noexcept;
  void EncodeWindow(const Event& event, uint32_t place, const WindowRecord& record,
                    RoutingScratch& scratch) noexcept;
  void DecodeWindow(const Event& event, uint32_t code, uint32_t place,
                    RoutingScratch& scratch) noexcept;
  void CopyCode(uint32_t from, uint32_t to) noexcept;
  void SwapCodes(uint32_t a, uint32_t b, RoutingScratch& scratch) noexcept;
  void RemoveCode(uint32_t code) noexcept;
  uint32_t FindRetained(WindowId window) const noexcept;  // codes() when there is none
  uint32_t FirstSlot(uint32_t place) const {
    return context_.geometry.sinks + place * context_.geometry.omega;
  }

  Storage storage_;
  Context context_;
  std::span<F16> value_means_;
  uint32_t full_ = 0, attended_ = 0, retained_ = 0, page_count_ = 0;
  float open_score_ = 0.0f;
};

}  // namespace qevict
