#include "cache/reference_attention.h"

#include <algorithm>

#include "core/out_of_memory.h"

namespace qevict {
namespace {

// into[w] becomes its sum with head[w], or the larger of both.
void AddHead(GroupMass kind, const std::vector<double>& head, std::vector<double>& into) {
  into.resize(head.size());
  for (size_t w = 0; w < head.size(); ++w) {
    into[w] = kind == GroupMass::kMax ? std::max(into[w], head[w]) : into[w] + head[w];
  }
}

}  // namespace

ReferenceAttention::ReferenceAttention(const KvShape& shape, uint32_t threads)
    : CacheAttention(shape, Isa::kScalar),
      next_item_(std::make_unique<std::atomic<uint32_t>[]>(shape.layers)),
      scratch_(threads) {}

void ReferenceAttention::MakeRoom(size_t tokens) {
  if (tokens <= room_tokens_) return;
  const size_t room = tokens + tokens / 4;  // decoding adds a token at a time
  for (Scratch& scratch : scratch_) {
    scratch.head.Reserve(room, shape_.head_dim);
    for (ReferenceHead::Masses* masses : {&scratch.masses, &scratch.group}) {
      masses->full.reserve(room + 1);  // as windows of one token, and the open one
      masses->codes.reserve(room);
    }
  }
  room_tokens_ = room;
}

Status ReferenceAttention::Bind(std::span<const BatchSlice> slices, LayerRange layers) {
  size_t tokens = 0;
  for (const BatchSlice& slice : slices) {
    for (uint32_t l = layers.first; l < layers.last; ++l) {
      for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
        tokens = std::max(tokens,
                          ReferenceHead::Tokens(*slice.kv, LayerId(l), KvHeadId(h), slice.tokens));
      }
    }
  }
  QEVICT_RETURN_IF_ERROR(OrOutOfMemory(
      "not enough memory to lay a KV head out in f32; use --attention fused", [&]() -> Status {
        slices_.assign(slices.begin(), slices.end());
        MakeRoom(tokens);
        return {};
      }));
  for (uint32_t l = layers.first; l < layers.last; ++l)
    next_item_[l].store(0, std::memory_order_relaxed);
  return {};
}

void ReferenceAttention::Attend(LayerId layer, RowsView q, float* out, size_t thread,
                                size_t threads) {
  if (observer_ != nullptr) observer_->OnAttend(layer, q, thread, threads);
  for (;;) {
    const uint32_t item = next_item_[layer.value].fetch_add(1, std::memory_order_relaxed);
    if (item >= slices_.size() * shape_.kv_heads) return;
    AttendHead({slices_[item / shape_.kv_heads], layer, KvHeadId(item % shape_.kv_heads)}, q, out,
               scratch_[thread]);
  }
}

void ReferenceAttention::AttendHead(const SliceHead& head, RowsView q, float* out,
                                    Scratch& scratch) const {
  const auto& [slice, layer, kv_head] = head;
  const size_t group_floats = size_t{shape_.group} * shape_.head_dim;
  const size_t row_floats = shape_.kv_heads * group_floats, first = kv_head.value * group_floats;
  const GroupMass kind = slice.kv->scoring().group;
  scratch.head.Read(*slice.kv, layer, kv_head, slice.tokens);
  for (uint32_t t = 0; t < slice.tokens; ++t) {
    const bool votes = slice.votes(layer) && t >= slice.voters_from;
    const size_t row = size_t{slice.first_row} + t;
    scratch.group.full.clear();
    scratch.group.codes.clear();
    for (size_t i = first; i < first + group_floats; i += shape_.head_dim) {
      scratch.head.Attend(t, q.base + row * q.stride + i, out + row * row_floats + i,
                          votes ? &scratch.masses : nullptr);
      if (!votes) continue;
      AddHead(kind, scratch.masses.full, scratch.group.full);
      AddHead(kind, scratch.masses.codes, scratch.group.codes);
    }
    if (votes) AddMasses(head, scratch.group);
  }
}

void ReferenceAttention::AddMasses(const SliceHead& head,
                                   const ReferenceHead::Masses& group) const {
  const auto& [slice, layer, kv_head] = head;
  const double heads = slice.kv->scoring().group == GroupMass::kMean ? shape_.group : 1.0;
  const auto add = [heads](const std::vector<double>& masses, std::span<MassUnits> into) {
    for (size_t w = 0; w < masses.size(); ++w) into[w] += ToMassUnits(float(masses[w] / heads));
  };
  add(group.full, slice.kv->full_mass(layer, kv_head));
  add(group.codes, slice.kv->code_mass(layer, kv_head));
}

}  // namespace qevict
