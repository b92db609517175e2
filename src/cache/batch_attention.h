// Attention of one batch over the caches of its sequences. Work is cut into items that do not
// depend on the number of threads, so results do not either, and handed out by a counter, longest
// first. A sequence with one new token has an item per KV head and range of keys; the item that
// finishes a head last merges its partial states in order. A sequence with more has an item per
// KV head and block of query tokens.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "cache/attention.h"
#include "cache/sequence_kv.h"
#include "core/isa.h"
#include "kernels/attend_decode/attend_decode.h"
#include "kernels/attend_prefill/attend_prefill.h"
#include "kernels/store_kv/store_kv.h"

namespace qevict {

// Tokens of one sequence inside a batch: rows [first_row, first_row + tokens) at positions
// kv->size_tokens() onwards.
struct BatchSlice {
  SequenceKv* kv = nullptr;
  uint32_t first_row = 0, tokens = 0;
};

class BatchAttention final : public Attention {
 public:
  BatchAttention(const KvShape& shape, Isa isa, uint32_t threads);
  ~BatchAttention() override;

  // Prepares for one run of the graph over `slices`, on whose caches BeginBatch was called. Error
  // kOutOfMemory.
  Status Bind(std::span<const BatchSlice> slices);

  void Store(LayerId layer, RowsView k, RowsView v, size_t thread, size_t threads) override;
  void Attend(LayerId layer, RowsView q, float* out, size_t thread, size_t threads) override;

 private:
  // One unit of work of a layer. Sliding-window and other layers have different lists.
  struct Item {
    uint32_t slice = 0, kv_head = 0;
    uint32_t begin = 0, end = 0;  // decode: positions of keys; prefill: tokens of the slice
    uint32_t partial = 0;         // decode: index of its partial state
    uint32_t head = 0;            // decode: index into the counters of unfinished heads
  };
  struct Head {
    uint32_t first_partial = 0, partials = 0;
  };
  struct Plan {
    std::vector<Item> items;
    std::vector<Head> heads;
  };
  struct Layer {
    std::atomic<uint32_t> next_item{0};
    std::unique_ptr<std::atomic<uint32_t>[]>
        unfinished;    // partial states that a head of the plan still waits for
    size_t heads = 0;  // room in `unfinished`
  };
  struct Scratch;

  void PlanLayers(LayerId any_layer, Plan& plan) const;
  const Plan& PlanOf(LayerId layer) const {
    return shape_.is_swa(layer.value) ? swa_plan_ : full_plan_;
  }
  AttentionState Partial(uint32_t index) const;
  // The scaled queries of one row's GQA group.
  void LoadQueries(RowsView q, size_t row, uint32_t kv_head, float* into) const;
  void AttendDecodeItem(LayerId layer, const Item& item, RowsView q, float* out, Scratch& scratch);
  void AttendPrefillItem(LayerId layer, const Item& item, RowsView q, float* out, Scratch& scratch);

  KvShape shape_;
  AttendDecodeFn attend_decode_;
  AttendPrefillFn attend_prefill_;
  StoreKvFn store_kv_;
  std::vector<BatchSlice> slices_;
  Plan full_plan_, swa_plan_;
  uint32_t full_layer_ = 0, swa_layer_ = 0;  // a layer of each kind; meaningful when there is one
  bool has_full_ = false, has_swa_ = false;
  std::vector<Layer> layers_;
  AlignedBuffer
      partials_;  // states of decode items: per item m and d [group] each, then o [group, head_dim]
  uint32_t partial_floats_ = 0;
  std::vector<std::unique_ptr<Scratch>> scratch_;  // one per thread
};

}  // namespace qevict
