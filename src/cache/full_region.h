// One allocation that holds full tokens of several layers: per layer, keys of all KV heads, then
// their values.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/kv_rows.h"
#include "cache/kv_shape.h"
#include "core/aligned_buffer.h"
#include "qevict/ids.h"
#include "qevict/status.h"

namespace qevict {

class FullRegion {
 public:
  // Slots of each layer, whole blocks of keys; 0: the region does not hold it.
  struct Slots {
    uint32_t full = 0;  // of a layer whose tokens see everything
    uint32_t ring = 0;  // of one with sliding-window attention
  };
  enum class Layers {
    kApart,   // each layer has its own place
    kShared,  // one after another in the same
  };
  FullRegion() = default;  // holds nothing
  // Error kOutOfMemory; throws std::bad_alloc.
  [[nodiscard]] static Result<FullRegion> Allocate(const KvShape& shape, KvType type, Slots slots,
                                                   Layers layers);

  bool empty() const { return arena_.size_bytes() == 0; }
  uint64_t size_bytes() const { return arena_.size_bytes(); }
  uint32_t slots(LayerId layer) const { return layers_[layer.value].slots; }
  KvRows Rows(LayerId layer, KvHeadId kv_head) const;

 private:
  struct Layer {
    uint64_t keys_offset = 0, values_offset = 0;  // in bytes
    uint32_t slots = 0;
  };
  AlignedBuffer arena_;
  std::vector<Layer> layers_;
  KvType type_ = KvType::kF16;
  uint32_t head_dim_ = 0;
};

}  // namespace qevict
