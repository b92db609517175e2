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

// Codes per decode item, in tokens: turning queries into code space and sums back counts once an
// item.
uint32_t CodeSplitTokens(uint32_t tokens) {
  return std::clamp<uint32_t>((tokens / 8 + 1023) / 1024 * 1024, 1024, 4096);
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
  CodeAttention::Scratch codes;
};

BatchAttention::BatchAttention(const KvShape& shape, Isa isa, uint32_t threads)
    : shape_(shape),
      attend_decode_(SelectVariant(AttendDecodeVariants(), isa)),
      attend_prefill_(SelectVariant(AttendPrefillVariants(), isa)),
      store_kv_(SelectVariant(StoreKvVariants(), isa)),
      code_attention_(shape, isa),
      layers_(shape.layers),
      partial_floats_(uint32_t(RoundUp16(2 * shape.group) + size_t{shape.group} * shape.head_dim)) {
  for (uint32_t t = 0; t < threads; ++t) scratch_.push_back(std::make_unique<Scratch>(shape));
}

BatchAttention::~BatchAttention() = default;

// One decoded token: its head's keys in ranges, merged when the last of them is done.
void BatchAttention::PlanHead(LayerId id, uint32_t slice, KvHeadId kv_head, Layer& layer) const {
  const SequenceKv& kv = *slices_[slice].kv;
  const uint32_t first_partial =
      layer.heads.empty() ? 0 : layer.heads.back().first_partial + layer.heads.back().partials;
  Head head{.first_partial = first_partial};
  const auto add = [&](Work work, uint32_t begin, uint32_t end) {
    layer.items.push_back({.work = work,
                           .slice = slice,
                           .kv_head = kv_head.value,
                           .begin = begin,
                           .end = end,
                           .partial = first_partial + head.partials++,
                           .head = uint32_t(layer.heads.size())});
  };
  const uint32_t cell = kv.cells(id, kv_head), from = kv.VisibleFrom(id, cell);
  const uint32_t split = DecodeSplitTokens(cell + 1 - from);
  for (uint32_t begin = from; begin <= cell;) {
    const uint32_t end = std::min(cell + 1, (begin / split + 1) * split);
    add(Work::kFull, begin, end);
    begin = end;
  }
  if (kv.routed(id)) {
    const HeadWindows& windows = kv.windows(id, kv_head);
    const uint32_t codes = uint32_t(windows.attended().size());
    const uint32_t step = std::max(1u, CodeSplitTokens(codes * windows.omega()) / windows.omega());
    for (uint32_t begin = 0; begin < codes; begin += step) {
      add(Work::kCodes, begin, std::min(begin + step, codes));
    }
  }
  layer.heads.push_back(head);
}

void BatchAttention::PlanLayer(LayerId id, Layer& layer) const {
  layer.items.clear();
  layer.heads.clear();
  for (uint32_t s = 0; s < slices_.size(); ++s) {
    const BatchSlice& slice = slices_[s];
    for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
      if (slice.tokens == 1) {
        PlanHead(id, s, KvHeadId(h), layer);
        continue;
      }
      const uint32_t step = QueryBlockTokens(shape_.group);
      for (uint32_t begin = 0; begin < slice.tokens; begin += step) {
        layer.items.push_back({.work = Work::kPrompt,
                               .slice = s,
                               .kv_head = h,
                               .begin = begin,
                               .end = std::min(begin + step, slice.tokens)});
      }
    }
  }
  // A late block of a prompt sees most keys: starting with the long items leaves the short ones to
  // even out the threads.
  std::ranges::stable_sort(layer.items, [](const Item& a, const Item& b) {
    const bool prompt_a = a.work == Work::kPrompt, prompt_b = b.work == Work::kPrompt;
    return prompt_a != prompt_b ? prompt_a : prompt_a && a.begin > b.begin;
  });
}

Status BatchAttention::Bind(std::span<const BatchSlice> slices) {
  slices_.assign(slices.begin(), slices.end());
  size_t partials = 0;
  for (uint32_t l = 0; l < shape_.layers; ++l) {
    Layer& layer = layers_[l];
    PlanLayer(LayerId(l), layer);
    layer.next_item.store(0, std::memory_order_relaxed);
    if (layer.heads.size() > layer.unfinished_room) {
      layer.unfinished = std::make_unique<std::atomic<uint32_t>[]>(layer.heads.size());
      layer.unfinished_room = layer.heads.size();
    }
    for (size_t h = 0; h < layer.heads.size(); ++h) {
      layer.unfinished[h].store(layer.heads[h].partials, std::memory_order_relaxed);
    }
    if (!layer.heads.empty()) {
      const Head& last = layer.heads.back();
      partials = std::max<size_t>(partials, last.first_partial + last.partials);
    }
  }
  const size_t bytes = partials * partial_floats_ * sizeof(float);
  if (bytes > partials_.size_bytes()) {
    QEVICT_ASSIGN_OR_RETURN(partials_, AlignedBuffer::Allocate(bytes + bytes / 2));
  }
  return {};
}

void BatchAttention::Store(LayerId layer, RowsView k, RowsView v, size_t thread, size_t threads) {
  if (observer_ != nullptr) observer_->OnStore(layer, k, v, thread, threads);
  size_t item = 0;
  for (const BatchSlice& slice : slices_) {
    for (uint32_t begin = 0; begin < slice.tokens; begin += kStoreTokens) {
      const uint32_t end = std::min(begin + kStoreTokens, slice.tokens);
      for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
        if (item++ % threads != thread) continue;
        const uint32_t cell = slice.kv->cells(layer, KvHeadId(h)) + begin;
        for (const SlotRange& range : slice.kv->Slots(layer, cell, cell + end - begin)) {
          if (range.begin == range.end) continue;
          const size_t row = slice.first_row + begin + (range.first - cell);
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

void BatchAttention::Attend(LayerId id, RowsView q, float* out, size_t thread, size_t threads) {
  if (observer_ != nullptr) observer_->OnAttend(id, q, thread, threads);
  Layer& layer = layers_[id.value];
  Scratch& scratch = *scratch_[thread];
  for (;;) {
    const uint32_t index = layer.next_item.fetch_add(1, std::memory_order_relaxed);
    if (index >= layer.items.size()) return;
    const Item& item = layer.items[index];
    switch (item.work) {
      case Work::kPrompt:
        AttendPrompt(id, item, q, out, scratch);
        continue;
      case Work::kFull:
        AttendFull(id, item, q, scratch);
        break;
      case Work::kCodes:
        AttendCodes(id, item, q, scratch);
        break;
    }
    FinishHead(id, item, out);
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

void BatchAttention::AttendFull(LayerId layer, const Item& item, RowsView q, Scratch& scratch) {
  const BatchSlice& slice = slices_[item.slice];
  const size_t group = shape_.group, head_dim = shape_.head_dim;
  LoadQueries(q, slice.first_row, item.kv_head, scratch.q.data());
  const AttentionState partial = Partial(item.partial);
  const auto ranges = slice.kv->Slots(layer, item.begin, item.end);
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
}

void BatchAttention::AttendCodes(LayerId layer, const Item& item, RowsView q, Scratch& scratch) {
  const BatchSlice& slice = slices_[item.slice];
  LoadQueries(q, slice.first_row, item.kv_head, scratch.q.data());
  code_attention_.Attend(*slice.kv->codec(), layer, KvHeadId(item.kv_head),
                         {.rows = shape_.group,
                          .q = scratch.q.data(),
                          .windows = &slice.kv->windows(layer, KvHeadId(item.kv_head)),
                          .first = item.begin,
                          .last = item.end,
                          .state = Partial(item.partial)},
                         scratch.codes);
}

// The last of a head's items merges them all, in order.
void BatchAttention::FinishHead(LayerId id, const Item& item, float* out) {
  Layer& layer = layers_[id.value];
  // acq_rel: the last one to finish sees the partial states that the others wrote.
  if (layer.unfinished[item.head].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const size_t group = shape_.group, head_dim = shape_.head_dim;
  const Head& head = layer.heads[item.head];
  const AttentionState whole = Partial(head.first_partial);
  for (uint32_t p = 1; p < head.partials; ++p)
    MergeState(whole, Partial(head.first_partial + p), group, head_dim);
  const size_t row = slices_[item.slice].first_row;
  FinishState(whole, group, head_dim,
              out + (row * shape_.kv_heads + item.kv_head) * group * head_dim, head_dim);
}

void BatchAttention::AttendPrompt(LayerId layer, const Item& item, RowsView q, float* out,
                                  Scratch& scratch) {
  const BatchSlice& slice = slices_[item.slice];
  const size_t group = shape_.group, head_dim = shape_.head_dim, tokens = item.end - item.begin;
  const KvHeadId kv_head(item.kv_head);
  const uint32_t first_cell = slice.kv->cells(layer, kv_head) + item.begin;
  for (size_t t = 0; t < tokens; ++t) {
    LoadQueries(q, slice.first_row + item.begin + t, item.kv_head,
                scratch.q.data() + t * group * head_dim);
  }
  if (slice.kv->routed(layer)) {
    const HeadWindows& windows = slice.kv->windows(layer, kv_head);
    code_attention_.Attend(*slice.kv->codec(), layer, kv_head,
                           {.rows = tokens * group,
                            .q = scratch.q.data(),
                            .windows = &windows,
                            .first = 0,
                            .last = uint32_t(windows.attended().size()),
                            .state = scratch.state()},
                           scratch.codes);
  } else {
    ResetState(scratch.state(), tokens * group, head_dim);
  }
  const uint32_t visible_from = slice.kv->VisibleFrom(layer, first_cell);
  const uint32_t visible_to = first_cell + uint32_t(tokens);
  for (const SlotRange& range : slice.kv->Slots(layer, visible_from, visible_to)) {
    if (range.begin == range.end) continue;
    const auto slot_of = [&range](uint32_t cell) {  // clipped to the range
      return cell <= range.first ? range.begin
                                 : std::min(range.end, range.begin + (cell - range.first));
    };
    for (size_t t = 0; t < tokens; ++t) {
      const uint32_t cell = first_cell + uint32_t(t);
      std::fill_n(&scratch.row_begin[t * group], group,
                  slot_of(slice.kv->VisibleFrom(layer, cell)));
      std::fill_n(&scratch.row_end[t * group], group, slot_of(cell + 1));
    }
    attend_prefill_({.rows = tokens * group,
                     .head_dim = head_dim,
                     .q = scratch.q.data(),
                     .kv = slice.kv->View(layer, kv_head),
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
