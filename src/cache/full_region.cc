#include "cache/full_region.h"

#include <algorithm>

namespace qevict {

Result<FullRegion> FullRegion::Allocate(const KvShape& shape, KvType type, Slots slots,
                                        Layers layers) {
  FullRegion region;
  region.type_ = type;
  region.head_dim_ = shape.head_dim;
  uint64_t next = 0, bytes = 0;
  for (uint32_t l = 0; l < shape.layers; ++l) {
    Layer& layer = region.layers_.emplace_back();
    layer.slots = shape.is_swa(l) ? slots.ring : slots.full;
    const uint64_t layer_bytes = layer.slots * shape.layer_token_bytes(type);
    layer.keys_offset = next;
    layer.values_offset = next + layer_bytes / 2;
    bytes = std::max(bytes, next + layer_bytes);
    if (layers == Layers::kApart) next += layer_bytes;
  }
  QEVICT_ASSIGN_OR_RETURN(region.arena_, AlignedBuffer::Allocate(bytes));
  return region;
}

KvRows FullRegion::Rows(LayerId layer, KvHeadId kv_head) const {
  const Layer& stored = layers_[layer.value];
  auto* base =
      arena_.as<uint8_t>() + size_t{kv_head.value} * stored.slots * KvRowBytes(type_, head_dim_);
  return {type_, head_dim_, stored.slots, base + stored.keys_offset, base + stored.values_offset};
}

}  // namespace qevict
