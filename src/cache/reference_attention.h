// Attention as the definition has it: per KV head everything is laid out in f32, codes decoded, and
// attended with one softmax. No SIMD, no code space, no states to merge; what the fused path is
// judged by. Slow: it lays the whole head out again for every batch, and uses as many threads as
// the batch has (sequence, KV head) pairs at most. Output and masses do not depend on the number of
// threads, nor on the other sequences of a batch.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "cache/cache_attention.h"
#include "cache/reference_head.h"

namespace qevict {

class ReferenceAttention final : public CacheAttention {
 public:
  ReferenceAttention(const KvShape& shape, uint32_t threads);

  using CacheAttention::Bind;
  Status Bind(std::span<const BatchSlice> slices, LayerRange layers) override;
  void Attend(LayerId layer, RowsView q, float* out, size_t thread, size_t threads) override;

 private:
  // A thread's own working room.
  struct Scratch {
    ReferenceHead head;
    ReferenceHead::Masses masses, group;  // of a query head, and summed or maximal over its group
  };
  struct SliceHead {
    const BatchSlice& slice;
    LayerId layer;
    KvHeadId kv_head;
  };
  void MakeRoom(size_t tokens);  // throws std::bad_alloc
  void AttendHead(const SliceHead& head, RowsView q, float* out, Scratch& scratch) const;
  // Adds what the query heads of a GQA group gave to the windows, summed or maximal over them, to
  // the sequence's masses.
  void AddMasses(const SliceHead& head, const ReferenceHead::Masses& group) const;

  std::unique_ptr<std::atomic<uint32_t>[]> next_item_;  // [layers]; slice by slice, head by head
  std::vector<Scratch> scratch_;                        // by thread
  size_t room_tokens_ = 0;                              // in every scratch
};

}  // namespace qevict
