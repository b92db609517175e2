// The KV state of one sequence under a byte budget. Every (layer, KV head) holds
//   the full tier   tokens by slot, f16 or int8 (kernels/kv_layout.h): sinks, then windows in any
//                   order, the open window last
//   the quantized tier   windows as codes in pages (kernels/code_layout.h), those that attention
//                   reads first, then those kept of windows that are full again
//   the ledger      id and score of each of these windows, and what the scoring asks for besides
// A layer with sliding-window attention keeps a ring of full tokens instead and is never routed.
// Without tiers (TierSplit::kFullOnly) the slot of a token is its position and nothing moves.
//
// A batch of tokens is announced (everything that can fail), stored and attended
// (batch_attention.h), and committed (nothing can fail): windows that left the local zone are then
// reviewed, per (layer, KV head), and moved as the routing policy says.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/cache_plan.h"
#include "cache/full_region.h"
#include "cache/head_windows.h"
#include "cache/kv_rows.h"
#include "cache/kv_shape.h"
#include "cache/page_pool.h"
#include "cache/routing_observer.h"
#include "cache/window_mass.h"
#include "codec/window_codec.h"
#include "core/aligned_buffer.h"
#include "kernels/kv_layout.h"
#include "policy/routing_policy.h"
#include "policy/scoring.h"
#include "qevict/byte_budget.h"
#include "qevict/ids.h"
#include "qevict/status.h"

namespace qevict {

// Slots [begin, end) hold the cells first, first + 1, ... of a layer. A cell is a token of the full
// tier in the order in which queries see it: in a ring its position, else its slot.
struct SlotRange {
  uint32_t begin = 0, end = 0;
  uint32_t first = 0;
};

struct TierStats {
  uint64_t events = 0;  // in which the history of all heads was reviewed
  uint64_t demotions = 0, promotions = 0, evictions = 0;  // windows, over all heads
  uint64_t encoded = 0;  // windows; at most one per window, whatever moves it makes
  double routing_seconds = 0.0;
  uint64_t full_windows = 0, quantized_windows = 0, evicted_windows = 0;  // of the history, now
};

class SequenceKv {
 public:
  struct Config {
    uint32_t capacity_tokens = 0;   // > 0
    uint32_t max_batch_tokens = 0;  // the most tokens that are stored and attended at once
    Geometry geometry = {};
    CachePlan plan = {};
    Promotion promotion = Promotion::kExpand;
    ScoringConfig scoring = {};    // the one that the plan was made for
    WindowCodec* codec = nullptr;  // may be null where nothing is coded; must outlive the sequence
    const RoutingPolicy* policy = nullptr;  // null: no tiers; the same
    RoutingObserver* observer = nullptr;    // the same; null: nobody
  };
  // Errors kOutOfMemory, kBudgetExceeded.
  [[nodiscard]] static Result<SequenceKv> Create(const KvShape& shape, const Config& config);

  // Without tiers: every token full.
  [[nodiscard]] static Result<SequenceKv> CreateFull(const KvShape& shape, uint32_t capacity_tokens,
                                                     uint32_t max_batch_tokens,
                                                     KvType type = KvType::kF16);

  SequenceKv(SequenceKv&&) = default;
  // The old claims and pools would give their bytes back to a budget that is gone.
  SequenceKv& operator=(SequenceKv&&) = delete;

  uint32_t size_tokens() const { return size_tokens_; }
  uint32_t capacity_tokens() const { return config_.capacity_tokens; }
  const KvShape& shape() const { return shape_; }
  const Geometry& geometry() const { return config_.geometry; }
  const CachePlan& plan() const { return config_.plan; }
  Promotion promotion() const { return config_.promotion; }
  // Whether routing reviews any layer, or every token stays full.
  bool tiered() const { return config_.policy != nullptr; }
  // Whether any window may become a code.
  bool codes() const { return config_.plan.code_windows() != 0; }
  bool routed(LayerId layer) const { return tiered() && !shape_.is_swa(layer.value); }
  // Whether attention must say how much each window of the layer received: when routing will have
  // to choose between windows.
  bool tracks_mass() const { return tracks_mass_; }
  bool tracks_mass(LayerId layer) const { return tracks_mass_ && routed(layer); }
  const ScoringConfig& scoring() const { return config_.scoring; }
  // Of the next `tokens` tokens, a batch or a whole prompt that passes layer by layer, the first
  // one that votes; those behind it do as well. `tokens`: none does.
  uint32_t VotersFrom(uint32_t tokens) const;
  // What the voters of the current batch gave, to be added to: by place (then the open window), and
  // by attended code. Sums of integers: added to atomically, or by the head's only thread. Working
  // room like that of routing: a few words per window, outside of the budget.
  std::span<MassUnits> full_mass(LayerId layer, KvHeadId head) const;
  std::span<MassUnits> code_mass(LayerId layer, KvHeadId head) const;
  const ByteBudget& budget() const { return *budget_; }
  // Full tokens of a prompt on their way into the tiers, which no budget counts: those of a batch
  // behind the full tier, in every layer, or all tokens of a prompt that passes exactly, in one.
  // They are of the tier's own type.
  uint64_t staging_bytes() const { return staging_.size_bytes(); }
  uint64_t staging_peak_bytes() const { return staging_peak_bytes_; }
  TierStats stats() const;
  // Bytes of codes in use; the budget counts the slabs that they are cut from.
  uint64_t code_bytes() const;

  // Cells of a head before the tokens of the current batch.
  uint32_t cells(LayerId layer, KvHeadId head) const;
  // The first cell that a query in cell `cell` sees.
  uint32_t VisibleFrom(LayerId layer, uint32_t cell) const;
  // The slots of cells [begin, end), oldest first: one range, or two when a ring wraps between them
  // (the second may be empty). Precondition: the layer still holds these cells.
  std::array<SlotRange, 2> Slots(LayerId layer, uint32_t begin, uint32_t end) const;
  // Full tokens of one KV head; `slots` covers every slot.
  KvView View(LayerId layer, KvHeadId head) const;
  KvRows Rows(LayerId layer, KvHeadId head);
  // Ledger and pages of a head of a routed layer.
  const HeadWindows& windows(LayerId layer, KvHeadId head) const {
    return heads_[HeadIndex(layer, head)];
  }

  // `tokens` more are about to be stored, in chunks of at most max_batch_tokens: for every layer
  // one after another, each behind SetPassed with what passed before it, and SetPassed(0) before
  // the commit; one chunk needs neither. They become part of the sequence with Commit; without it
  // they do not exist, and AbandonBatch gives back the room that they had. Errors kOutOfMemory,
  // kBudgetExceeded: no token and no window has changed, but slabs of pages that were already taken
  // stay for the next attempt.
  Status BeginBatch(uint32_t tokens);
  void Commit() noexcept;
  void AbandonBatch() noexcept;

  // A long prompt, layer by layer: every token passes through a layer, whose full K/V then exists
  // once, for that layer alone, and is routed before the next layer begins. Only into an empty
  // sequence. Order: BeginPrompt, then for every layer BeginLayer, chunks (each stored and attended
  // behind SetPassed), CommitLayer; then EndPrompt, or AbandonPrompt, which empties the sequence.
  // BeginPrompt fails as BeginBatch does.
  Status BeginPrompt(uint32_t tokens);
  void BeginLayer(LayerId layer);
  void SetPassed(uint32_t tokens) { passed_tokens_ = tokens; }
  void CommitLayer(LayerId layer) noexcept;
  void EndPrompt() noexcept;
  void AbandonPrompt() noexcept;
  // Whether a prompt of so many tokens goes through a staging region.
  bool needs_staging(uint32_t tokens) const {
    return tiered() && most_cells() + tokens > config_.plan.full_slots;
  }
  // Forgets the tokens from `size_tokens` on. Error kUnsupported: a ring no longer holds the window
  // before them, or they have been routed.
  Status Truncate(uint32_t size_tokens);

 private:
  SequenceKv(const KvShape& shape, const Config& config) : shape_(shape), config_(config) {}

  const FullRegion& RegionOf(LayerId layer) const {
    return !staging_.empty() && routed(layer) ? staging_ : resident_;
  }
  size_t HeadIndex(LayerId layer, KvHeadId head) const {
    return size_t{routed_index_[layer.value]} * shape_.kv_heads + head.value;
  }
  uint32_t most_cells() const;  // of any head of a routed layer
  void MakePools();
  Status AllocateTiers();  // these two throw std::bad_alloc too
  Status AllocateLedger();
  Status PrepareBatch(uint32_t tokens);
  Status PreparePrompt(uint32_t tokens);
  Status PrepareRouting(uint32_t new_size);
  Status FitFullTier(uint32_t tokens);
  Status AllocateStaging(uint32_t tokens, FullRegion::Layers layers);
  void CopyFullTier(const FullRegion& from, const FullRegion& to) const noexcept;
  void CopyLayer(const FullRegion& from, const FullRegion& to, LayerId layer,
                 uint32_t size) const noexcept;
  void PrepareMasses(uint32_t first_head, uint32_t last_head, uint32_t new_size);
  void PrepareVoters(uint32_t tokens);
  void CommitHeads(LayerId layer, uint32_t new_size) noexcept;
  void ReportMoves(LayerId layer, KvHeadId head) noexcept;
  bool ReviewsHistory(uint32_t new_size) const {
    const Geometry& g = config_.geometry;
    return g.history_windows(new_size) != g.history_windows(size_tokens_);
  }
  void EndEvent(uint32_t batch_tokens) noexcept;

  KvShape shape_;
  Config config_;
  std::unique_ptr<ByteBudget> budget_;  // claims point to it
  std::vector<ByteBudget::Claim> claims_;
  FullRegion resident_, staging_;
  AlignedBuffer ledger_;
  std::vector<uint32_t> routed_index_;            // [layers]
  std::vector<std::unique_ptr<PagePool>> pools_;  // one per format; heads point to them
  std::vector<HeadWindows> heads_;                // [routed layers, kv_heads]
  std::vector<uint32_t> pool_of_;                 // of the heads
  std::vector<size_t> pool_pages_;                // that a batch may take of each pool
  RoutingScratch scratch_;
  bool tracks_mass_ = false;
  mutable std::vector<MassUnits> masses_;
  // Of one head, on their way into the ledger.
  std::vector<float> full_floats_, code_floats_;
  struct MassRange {
    size_t first = 0;
    uint32_t full = 0, codes = 0;
  };
  std::vector<MassRange> mass_ranges_;  // by head
  std::span<uint32_t> voters_before_;   // by window: voters before its first token; may be empty
  uint32_t voters_ = 0, batch_voters_ = 0;
  TierStats stats_;
  TierStats stats_before_prompt_;   // that passes layer by layer, and may be given up
  TierStats stats_reported_;        // as of the last event that was reported
  uint32_t observed_sequence_ = 0;  // the observer's number
  std::vector<WindowMove> moves_;   // of one head, on their way to the observer
  uint64_t staging_peak_bytes_ = 0;
  uint32_t size_tokens_ = 0;
  uint32_t batch_tokens_ = 0;
  uint32_t passed_tokens_ = 0;  // of a prompt, through the current layer, before the current chunk
  uint32_t prompt_tokens_ = 0;
  uint32_t written_tokens_ = 0;  // how far rings were ever written, committed or not
};

}  // namespace qevict
