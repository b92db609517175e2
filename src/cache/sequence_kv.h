// The full-precision KV state of one sequence: f16 keys and values of every layer in the layout of
// kernels/kv_layout.h. A layer with sliding-window attention keeps a ring that holds its window and
// one batch; other layers keep every token.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cache/kv_shape.h"
#include "core/aligned_buffer.h"
#include "kernels/kv_layout.h"
#include "qevict/ids.h"
#include "qevict/status.h"

namespace qevict {

// Slots [begin, end) hold the tokens at positions first, first + 1, ...
struct SlotRange {
  uint32_t begin = 0, end = 0;
  uint32_t first = 0;
};

class SequenceKv {
 public:
  struct Config {
    uint32_t capacity_tokens = 0;   // > 0
    uint32_t max_batch_tokens = 0;  // the most tokens that one batch appends; sizes the rings
  };
  // Error kOutOfMemory.
  [[nodiscard]] static Result<SequenceKv> Create(const KvShape& shape, const Config& config);
  // What Create allocates for one layer: the slots (the capacity, or a ring of the window and one
  // batch, in whole blocks of keys) and their bytes in all KV heads. The layers' sum becomes whole
  // pages.
  static uint32_t LayerSlots(const KvShape& shape, LayerId layer, const Config& config);
  static uint64_t LayerBytes(const KvShape& shape, LayerId layer, const Config& config);

  uint32_t size_tokens() const { return size_tokens_; }
  uint32_t capacity_tokens() const { return config_.capacity_tokens; }
  const KvShape& shape() const { return shape_; }
  uint64_t resident_bytes() const { return arena_.size_bytes(); }  // what the allocator handed out

  // Storage of one KV head. `slots` are those that are allocated: the ones that no token was stored
  // to yet hold zeros, in a ring that has wrapped earlier tokens.
  KvView View(LayerId layer, KvHeadId head) const;
  F16* Keys(LayerId layer, KvHeadId head);
  F16* Values(LayerId layer, KvHeadId head);

  // The slots of positions [begin, end), oldest first: one range, or two when a ring wraps between
  // them (the second may be empty). Precondition: the layer still holds these positions.
  std::array<SlotRange, 2> Slots(LayerId layer, Position begin, Position end) const;
  // The first position that a query at `position` sees.
  uint32_t VisibleFrom(LayerId layer, uint32_t position) const;

  // `tokens` more are about to be stored. They become part of the sequence with Commit; without it
  // they do not exist.
  void BeginBatch(uint32_t tokens);
  void Commit();
  // Forgets the tokens from `size_tokens` on. Error kUnsupported: a ring no longer holds the window
  // before them.
  Status Truncate(uint32_t size_tokens);

 private:
  struct Layer {
    uint64_t keys_offset = 0, values_offset = 0;  // in F16 elements from the start of the arena
    uint32_t slots = 0;                           // a multiple of kKeyBlockTokens
  };
  SequenceKv(const KvShape& shape, const Config& config) : shape_(shape), config_(config) {}
  KvShape shape_;
  Config config_;
  std::vector<Layer> layers_;
  AlignedBuffer arena_;
  uint32_t size_tokens_ = 0;
  uint32_t batch_tokens_ = 0;
  uint32_t written_tokens_ = 0;  // how far rings were ever written, committed or not
};

}  // namespace qevict
