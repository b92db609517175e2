#include "cache/sequence_kv.h"

#include <algorithm>
#include <string>

#include "core/check.h"

namespace qevict {
namespace {

uint32_t RoundUpToBlock(uint64_t tokens) {
  return uint32_t((tokens + kKeyBlockTokens - 1) / kKeyBlockTokens * kKeyBlockTokens);
}

}  // namespace

uint32_t SequenceKv::LayerSlots(const KvShape& shape, LayerId layer, const Config& config) {
  uint64_t tokens = config.capacity_tokens;
  if (shape.is_swa(layer.value))
    tokens = std::min<uint64_t>(tokens, uint64_t{shape.swa_window} + config.max_batch_tokens);
  return RoundUpToBlock(tokens);
}

uint64_t SequenceKv::LayerBytes(const KvShape& shape, LayerId layer, const Config& config) {
  return LayerSlots(shape, layer, config) * shape.layer_token_bytes();
}

Result<SequenceKv> SequenceKv::Create(const KvShape& shape, const Config& config) {
  QEVICT_CHECK_LT(0u, config.capacity_tokens);
  SequenceKv kv(shape, config);
  kv.layers_.resize(shape.layers);
  uint64_t bytes = 0;
  for (uint32_t l = 0; l < shape.layers; ++l) {
    const uint64_t layer_bytes = LayerBytes(shape, LayerId(l), config);
    Layer& layer = kv.layers_[l];
    layer.slots = LayerSlots(shape, LayerId(l), config);
    layer.keys_offset = bytes / sizeof(F16);
    layer.values_offset = (bytes + layer_bytes / 2) / sizeof(F16);
    bytes += layer_bytes;
  }
  // One allocation, so that either the whole cache fits into memory or nothing was taken.
  QEVICT_ASSIGN_OR_RETURN(kv.arena_, AlignedBuffer::Allocate(bytes));
  return kv;
}

KvView SequenceKv::View(LayerId layer, KvHeadId head) const {
  const Layer& stored = layers_[layer.value];
  const size_t offset = size_t{head.value} * stored.slots * shape_.head_dim;
  const F16* arena = arena_.as<F16>();
  return {arena + stored.keys_offset + offset, arena + stored.values_offset + offset, stored.slots};
}

F16* SequenceKv::Keys(LayerId layer, KvHeadId head) {
  return const_cast<F16*>(View(layer, head).k);
}
F16* SequenceKv::Values(LayerId layer, KvHeadId head) {
  return const_cast<F16*>(View(layer, head).v);
}

std::array<SlotRange, 2> SequenceKv::Slots(LayerId layer, Position from, Position to) const {
  const uint32_t begin = from.value, end = to.value;
  const uint32_t slots = layers_[layer.value].slots;
  QEVICT_DCHECK(begin <= end && end - begin <= slots);
  const uint32_t first_slot = begin % slots;
  const uint32_t first_count = std::min(end - begin, slots - first_slot);
  return {SlotRange{first_slot, first_slot + first_count, begin},
          SlotRange{0, end - begin - first_count, begin + first_count}};
}

uint32_t SequenceKv::VisibleFrom(LayerId layer, uint32_t position) const {
  if (!shape_.is_swa(layer.value) || position < shape_.swa_window) return 0;
  return position + 1 - shape_.swa_window;
}

void SequenceKv::BeginBatch(uint32_t tokens) {
  QEVICT_CHECK_LE(tokens, config_.max_batch_tokens);
  QEVICT_CHECK_LE(tokens, config_.capacity_tokens - size_tokens_);
  batch_tokens_ = tokens;
  written_tokens_ = std::max(written_tokens_, size_tokens_ + tokens);
}

void SequenceKv::Commit() {
  size_tokens_ += batch_tokens_;
  batch_tokens_ = 0;
}

Status SequenceKv::Truncate(uint32_t size_tokens) {
  QEVICT_CHECK_LE(size_tokens, size_tokens_);
  for (uint32_t l = 0; l < shape_.layers; ++l) {
    if (!shape_.is_swa(l) || size_tokens == 0) continue;
    const uint32_t kept_from =
        written_tokens_ > layers_[l].slots ? written_tokens_ - layers_[l].slots : 0;
    if (kept_from > VisibleFrom(LayerId(l), size_tokens)) {
      return Fail(
          ErrorCode::kUnsupported,
          "the sliding-window layers of this model no longer hold the tokens before position " +
              std::to_string(size_tokens) + "; start a new sequence instead");
    }
  }
  size_tokens_ = size_tokens;
  if (size_tokens == 0) written_tokens_ = 0;
  return {};
}

}  // namespace qevict
