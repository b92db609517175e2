// Fused attention of one batch over the caches of its sequences. Work is cut into items that do not
// depend on the number of threads, so results do not either, and handed out by a counter. A
// sequence with one new token has, per KV head, an item for each range of full keys and of codes;
// the item that finishes a head last merges its partial states in order. A sequence with more has
// an item per KV head and block of query tokens. Either way those of its tokens that vote add what
// windows received to the sequence's masses.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "cache/cache_attention.h"
#include "cache/code_attention.h"
#include "cache/window_votes.h"
#include "core/isa.h"
#include "kernels/attend_decode/attend_decode.h"
#include "kernels/attend_prefill/attend_prefill.h"

namespace qevict {

// What prompts are attended in; kBf16 where the CPU has it (kernels/attend_prefill), else f32.
enum class PromptArithmetic { kF32, kBf16 };

class BatchAttention final : public CacheAttention {
 public:
  BatchAttention(const KvShape& shape, Isa isa, uint32_t threads,
                 PromptArithmetic prompts = PromptArithmetic::kF32);
  ~BatchAttention() override;

  using CacheAttention::Bind;
  Status Bind(std::span<const BatchSlice> slices, LayerRange layers) override;
  void Attend(LayerId layer, RowsView q, float* out, size_t thread, size_t threads) override;

 private:
  enum class Work : uint8_t { kPrompt, kFull, kCodes };
  // One unit of work of a layer.
  struct Item {
    Work work = Work::kFull;
    uint32_t slice = 0, kv_head = 0;
    uint32_t begin = 0, end = 0;  // tokens of the slice, of kPrompt
    // Of the others: index of its part and partial state, and into the heads whose states are
    // merged.
    uint32_t partial = 0, head = 0;
  };
  // A range of one head's keys.
  struct Part {
    Work work = Work::kFull;
    uint32_t begin = 0, end = 0;  // cells of full keys, or codes
    // Where its masses begin among the layer's: [group, end - begin], when the slice votes.
    size_t masses = 0;
  };
  struct Head {
    uint32_t first_partial = 0, partials = 0;
  };
  struct Layer {
    std::vector<Item> items;
    std::vector<Head> heads;
    std::vector<Part> parts;  // by partial state
    size_t mass_floats = 0;
    std::atomic<uint32_t> next_item{0};
    // Partial states that each head still waits for.
    std::unique_ptr<std::atomic<uint32_t>[]> unfinished;
    size_t unfinished_room = 0;
  };
  struct HeadKeys {
    const SequenceKv* kv;
    LayerId layer;
    KvHeadId head;
  };
  struct Scratch;

  // Of a part: [group, end - begin], which refer to m [group].
  struct PartMasses {
    const float* masses;
    const float* m;
  };

  // Error kOutOfMemory; throws std::bad_alloc, as do the next four.
  Status PlanAndMakeRoom(std::span<const BatchSlice> slices, LayerRange layers);
  // Room for what the layers' plans need.
  Status MakeRoom(LayerRange layers);
  void ReserveScratch(const BatchSlice& slice, const HeadKeys& keys);
  void PlanLayer(LayerId id, Layer& layer) const;
  void PlanHead(LayerId id, uint32_t slice, KvHeadId kv_head, Layer& layer) const;
  AttentionState Partial(uint32_t index) const;
  // The scaled queries of one row's GQA group.
  void LoadQueries(RowsView q, size_t row, uint32_t kv_head, float* into) const;
  // One query row's group over a part of its head's keys. `masses` may be null.
  void AttendPart(const HeadKeys& keys, const Part& part, AttentionState state, float* masses,
                  Scratch& scratch) const;
  // Adds what `part` received to `windows`, [group, places and open window, codes]: its share of
  // the whole softmax, whose (m, d) are `whole`.
  void GatherMasses(const HeadKeys& keys, const Part& part, PartMasses received,
                    AttentionState whole, std::span<float> windows) const;
  void FinishHead(LayerId layer, const Item& item, float* out, Scratch& scratch);
  // The tokens of `item` from token `voter` on vote; their attention is in `scratch`.
  void Vote(const HeadKeys& keys, const Item& item, uint32_t voter, Scratch& scratch) const;
  void AttendPrompt(LayerId layer, const Item& item, RowsView q, float* out, Scratch& scratch);

  AttendDecodeFn attend_decode_;
  AttendPrefillFn attend_prefill_;
  PromptArithmetic prompts_;
  CodeAttention code_attention_;
  WindowVotes votes_;
  std::vector<Layer> layers_;
  // Partial states: per item m and d [group] each, then o [group, head_dim].
  AlignedBuffer partials_;
  AlignedBuffer masses_;  // of a layer's parts
  uint32_t partial_floats_ = 0;
  std::vector<std::unique_ptr<Scratch>> scratch_;  // one per thread
};

}  // namespace qevict
