#include "cache/batch_attention.h"

#include <algorithm>

#include "core/check.h"

namespace qevict {
namespace {

// Tokens per Store item: whole K blocks, enough of them to be worth a function call.
constexpr uint32_t kStoreTokens = 64;

constexpr size_t RoundUp16(size_t n) { return (n + 15) / 16 * 16; }

// Keys per decode item. Long enough that the first tile of an item, which nothing prefetched, does
// not count (512 -> 2,048 keys at 32K tokens: 42.1 -> 39.0 ms a step, Qwen 0.5B shapes, one
// thread); short enough that a dozen threads find work at 8K.
uint32_t DecodeSplitTokens(uint32_t visible_tokens) {
  return std::clamp<uint32_t>((visible_tokens / 16 + 511) / 512 * 512, 512, 2048);
}

uint32_t QueryBlockTokens(uint32_t group) { return std::max<uint32_t>(1, kPrefillMaxRows / group); }

}  // namespace

// A thread's own room, written by no other.
struct BatchAttention::Scratch {
  explicit Scratch(const KvShape& shape)
      : rows(std::max<size_t>(kPrefillMaxRows, shape.group)),
        q(rows * shape.head_dim),
        m(rows),
        d(rows),
        o(rows * shape.head_dim),
        row_begin(rows),
        row_end(rows),
        tiles(PrefillScratchFloats(shape.head_dim) + 16) {}
  AttentionState state() { return {m.data(), d.data(), o.data()}; }
  float* aligned_tiles() {
    return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(tiles.data()) + 63) / 64 * 64);
  }
  size_t rows;
  std::vector<float> q, m, d, o;
  std::vector<uint32_t> row_begin, row_end;
  std::vector<float> tiles;
};

BatchAttention::BatchAttention(const KvShape& shape, Isa isa, uint32_t threads)
    : shape_(shape),
      attend_decode_(SelectVariant(AttendDecodeVariants(), isa)),
      attend_prefill_(SelectVariant(AttendPrefillVariants(), isa)),
      store_kv_(SelectVariant(StoreKvVariants(), isa)),
      layers_(shape.layers),
      partial_floats_(uint32_t(RoundUp16(2 * shape.group) + size_t{shape.group} * shape.head_dim)) {
  for (uint32_t l = 0; l < shape.layers; ++l) {
    (shape.is_swa(l) ? swa_layer_ : full_layer_) = l;
    (shape.is_swa(l) ? has_swa_ : has_full_) = true;
  }
  for (uint32_t t = 0; t < threads; ++t) scratch_.push_back(std::make_unique<Scratch>(shape));
}

BatchAttention::~BatchAttention() = default;

void BatchAttention::PlanLayers(LayerId any_layer, Plan& plan) const {
  plan.items.clear();
  plan.heads.clear();
  uint32_t partials = 0;
  for (uint32_t s = 0; s < slices_.size(); ++s) {
    const BatchSlice& slice = slices_[s];
    const uint32_t position = slice.kv->size_tokens();
    for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
      if (slice.tokens > 1) {
        const uint32_t step = QueryBlockTokens(shape_.group);
        for (uint32_t begin = 0; begin < slice.tokens; begin += step) {
          plan.items.push_back({.slice = s,
                                .kv_head = h,
                                .begin = begin,
                                .end = std::min(begin + step, slice.tokens)});
        }
        continue;
      }
      Head head{.first_partial = partials};
      const uint32_t from = slice.kv->VisibleFrom(any_layer, position);
      const uint32_t split = DecodeSplitTokens(position + 1 - from);
      for (uint32_t begin = from; begin <= position;) {
        const uint32_t end = std::min(position + 1, (begin / split + 1) * split);
        plan.items.push_back({.slice = s,
                              .kv_head = h,
                              .begin = begin,
                              .end = end,
                              .partial = partials++,
                              .head = uint32_t(plan.heads.size())});
        begin = end;
      }
      head.partials = partials - head.first_partial;
      plan.heads.push_back(head);
    }
  }
  // A late block of a prompt sees most keys: starting with the long items leaves the short ones to
  // even out the threads.
  std::ranges::stable_sort(plan.items, [this](const Item& a, const Item& b) {
    const bool prefill_a = slices_[a.slice].tokens > 1, prefill_b = slices_[b.slice].tokens > 1;
    return prefill_a != prefill_b ? prefill_a : prefill_a && a.begin > b.begin;
  });
}

Status BatchAttention::Bind(std::span<const BatchSlice> slices) {
  slices_.assign(slices.begin(), slices.end());
  if (has_full_) PlanLayers(LayerId(full_layer_), full_plan_);
  if (has_swa_) PlanLayers(LayerId(swa_layer_), swa_plan_);
  size_t partials = 0;
  for (const Plan* plan : {&full_plan_, &swa_plan_}) {
    size_t count = 0;
    for (const Head& head : plan->heads) count += head.partials;
    partials = std::max(partials, count);
  }
  const size_t bytes = partials * partial_floats_ * sizeof(float);
  if (bytes > partials_.size_bytes()) {
    QEVICT_ASSIGN_OR_RETURN(partials_, AlignedBuffer::Allocate(bytes + bytes / 2));
  }
  for (uint32_t l = 0; l < shape_.layers; ++l) {
    const Plan& plan = PlanOf(LayerId(l));
    Layer& layer = layers_[l];
    layer.next_item.store(0, std::memory_order_relaxed);
    if (plan.heads.size() > layer.heads) {
      layer.unfinished = std::make_unique<std::atomic<uint32_t>[]>(plan.heads.size());
      layer.heads = plan.heads.size();
    }
    for (size_t h = 0; h < plan.heads.size(); ++h) {
      layer.unfinished[h].store(plan.heads[h].partials, std::memory_order_relaxed);
    }
  }
  return {};
}

void BatchAttention::Store(LayerId layer, RowsView k, RowsView v, size_t thread, size_t threads) {
  size_t item = 0;
  for (const BatchSlice& slice : slices_) {
    for (uint32_t begin = 0; begin < slice.tokens; begin += kStoreTokens) {
      const uint32_t end = std::min(begin + kStoreTokens, slice.tokens);
      const uint32_t position = slice.kv->size_tokens() + begin;
      for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
        if (item++ % threads != thread) continue;
        for (const SlotRange& range :
             slice.kv->Slots(layer, Position(position), Position(position + end - begin))) {
          if (range.begin == range.end) continue;
          const size_t row = slice.first_row + begin + (range.first - position);
          store_kv_({.tokens = range.end - range.begin,
                     .head_dim = shape_.head_dim,
                     .k = k.base + row * k.stride + size_t{h} * shape_.head_dim,
                     .v = v.base + row * v.stride + size_t{h} * shape_.head_dim,
                     .k_stride = k.stride,
                     .v_stride = v.stride,
                     .k_out = slice.kv->Keys(layer, KvHeadId(h)),
                     .v_out = slice.kv->Values(layer, KvHeadId(h)),
                     .slot = range.begin});
        }
      }
    }
  }
}

void BatchAttention::Attend(LayerId layer, RowsView q, float* out, size_t thread, size_t) {
  const Plan& plan = PlanOf(layer);
  Scratch& scratch = *scratch_[thread];
  std::atomic<uint32_t>& next_item = layers_[layer.value].next_item;
  for (;;) {
    const uint32_t index = next_item.fetch_add(1, std::memory_order_relaxed);
    if (index >= plan.items.size()) return;
    const Item& item = plan.items[index];
    if (slices_[item.slice].tokens == 1) {
      AttendDecodeItem(layer, item, q, out, scratch);
    } else {
      AttendPrefillItem(layer, item, q, out, scratch);
    }
  }
}

AttentionState BatchAttention::Partial(uint32_t index) const {
  float* base = partials_.as<float>() + size_t{index} * partial_floats_;
  return {base, base + shape_.group, base + RoundUp16(2 * shape_.group)};
}

void BatchAttention::LoadQueries(RowsView q, size_t row, uint32_t kv_head, float* into) const {
  const size_t floats = size_t{shape_.group} * shape_.head_dim;
  const float* from = q.base + row * q.stride + kv_head * floats;
  for (size_t i = 0; i < floats; ++i) into[i] = from[i] * shape_.score_scale;
}

void BatchAttention::AttendDecodeItem(LayerId layer, const Item& item, RowsView q, float* out,
                                      Scratch& scratch) {
  const BatchSlice& slice = slices_[item.slice];
  const size_t group = shape_.group, head_dim = shape_.head_dim;
  LoadQueries(q, slice.first_row, item.kv_head, scratch.q.data());
  const AttentionState partial = Partial(item.partial);
  const auto ranges = slice.kv->Slots(layer, Position(item.begin), Position(item.end));
  AttendDecodeArgs args{.group = group,
                        .head_dim = head_dim,
                        .q = scratch.q.data(),
                        .kv = slice.kv->View(layer, KvHeadId(item.kv_head)),
                        .begin = ranges[0].begin,
                        .end = ranges[0].end,
                        .state = partial};
  attend_decode_(args);
  if (ranges[1].begin != ranges[1].end) {  // the ring wraps inside this range
    args.begin = ranges[1].begin;
    args.end = ranges[1].end;
    args.state = scratch.state();
    attend_decode_(args);
    MergeState(partial, scratch.state(), group, head_dim);
  }
  // acq_rel: the last one to finish sees the partial states that the others wrote.
  if (layers_[layer.value].unfinished[item.head].fetch_sub(1, std::memory_order_acq_rel) != 1)
    return;
  const Head& head = PlanOf(layer).heads[item.head];
  const AttentionState whole = Partial(head.first_partial);
  for (uint32_t p = 1; p < head.partials; ++p)
    MergeState(whole, Partial(head.first_partial + p), group, head_dim);
  const size_t row_floats = shape_.kv_heads * group * head_dim;
  FinishState(whole, group, head_dim,
              out + slice.first_row * row_floats + item.kv_head * group * head_dim, head_dim);
}

void BatchAttention::AttendPrefillItem(LayerId layer, const Item& item, RowsView q, float* out,
                                       Scratch& scratch) {
  const BatchSlice& slice = slices_[item.slice];
  const size_t group = shape_.group, head_dim = shape_.head_dim, tokens = item.end - item.begin;
  const uint32_t first_position = slice.kv->size_tokens() + item.begin;
  for (size_t t = 0; t < tokens; ++t) {
    LoadQueries(q, slice.first_row + item.begin + t, item.kv_head,
                scratch.q.data() + t * group * head_dim);
  }
  ResetState(scratch.state(), tokens * group, head_dim);
  const uint32_t visible_from = slice.kv->VisibleFrom(layer, first_position);
  const uint32_t visible_to = first_position + uint32_t(tokens);
  for (const SlotRange& range :
       slice.kv->Slots(layer, Position(visible_from), Position(visible_to))) {
    if (range.begin == range.end) continue;
    const auto slot_of = [&range](uint32_t position) {  // clipped to the range
      return position <= range.first ? range.begin
                                     : std::min(range.end, range.begin + (position - range.first));
    };
    for (size_t t = 0; t < tokens; ++t) {
      const uint32_t position = first_position + uint32_t(t);
      std::fill_n(&scratch.row_begin[t * group], group,
                  slot_of(slice.kv->VisibleFrom(layer, position)));
      std::fill_n(&scratch.row_end[t * group], group, slot_of(position + 1));
    }
    attend_prefill_({.rows = tokens * group,
                     .head_dim = head_dim,
                     .q = scratch.q.data(),
                     .kv = slice.kv->View(layer, KvHeadId(item.kv_head)),
                     .begin = range.begin,
                     .end = range.end,
                     .row_begin = scratch.row_begin.data(),
                     .row_end = scratch.row_end.data(),
                     .state = scratch.state(),
                     .scratch = scratch.aligned_tiles()});
  }
  const size_t row_floats = shape_.kv_heads * group * head_dim;
  for (size_t t = 0; t < tokens; ++t) {
    const AttentionState token = {&scratch.m[t * group], &scratch.d[t * group],
                                  &scratch.o[t * group * head_dim]};
    float* row = out + (slice.first_row + item.begin + t) * row_floats;
    FinishState(token, group, head_dim, row + item.kv_head * group * head_dim, head_dim);
  }
}

}  // namespace qevict
