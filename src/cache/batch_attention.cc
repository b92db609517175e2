#include "cache/batch_attention.h"

#include <algorithm>
#include <cmath>

#include "cache/decode_split.h"
#include "cache/grow_room.h"
#include "core/out_of_memory.h"

namespace qevict {
namespace {

constexpr size_t RoundUp16(size_t n) { return (n + 15) / 16 * 16; }

constexpr uint32_t kNoHead = UINT32_MAX;

uint32_t QueryBlockTokens(uint32_t group) { return std::max<uint32_t>(1, kPrefillMaxRows / group); }

}  // namespace

// A thread's own room, written by no other. Bind makes it large enough: a failed allocation on a
// graph's thread would end the program.
struct BatchAttention::Scratch {
  explicit Scratch(const KvShape& shape)
      : rows(std::max<size_t>(kPrefillMaxRows, shape.group)),
        q(rows * shape.head_dim),
        m(rows),
        d(rows),
        o(rows * shape.head_dim),
        row_begin(rows),
        row_end(rows),
        tiles(PrefillScratchFloats(shape.head_dim) + 16),
        codes_m(rows) {}
  AttentionState state() { return {m.data(), d.data(), o.data()}; }
  float* aligned_tiles() {
    return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(tiles.data()) + 63) / 64 * 64);
  }
  size_t rows;
  std::vector<float> q, m, d, o;
  std::vector<uint32_t> row_begin, row_end;
  std::vector<float> tiles;
  CodeAttention::Scratch codes;
  // Of which of the layer's heads q holds the queries, and codes holds them turned.
  uint32_t loaded_head = kNoHead, turned_head = kNoHead;
  // Of votes: what a decoded token's group gives to windows, or what a prompt's rows give to codes
  // and the m that it refers to.
  std::vector<float> masses, codes_m;
  WindowVotes::Scratch votes;
};

BatchAttention::BatchAttention(const KvShape& shape, Isa isa, uint32_t threads,
                               PromptArithmetic prompts)
    : CacheAttention(shape, isa),
      attend_decode_(SelectVariant(AttendDecodeVariants(), isa)),
      attend_prefill_(SelectVariant(AttendPrefillVariants(), isa)),
      prompts_(prompts),
      code_attention_(shape, isa),
      votes_(shape, isa),
      layers_(shape.layers),
      partial_floats_(uint32_t(RoundUp16(2 * shape.group) + size_t{shape.group} * shape.head_dim)) {
  for (uint32_t t = 0; t < threads; ++t) scratch_.push_back(std::make_unique<Scratch>(shape));
}

BatchAttention::~BatchAttention() = default;

// One decoded token: the keys that it sees in parts, merged when the last of them is done.
void BatchAttention::PlanHead(LayerId id, uint32_t slice, KvHeadId kv_head, Layer& layer) const {
  const SequenceKv& kv = *slices_[slice].kv;
  const bool votes = slices_[slice].votes(id);
  const uint32_t first_partial = uint32_t(layer.parts.size());
  const auto add = [&](Part part) {
    layer.items.push_back({.work = part.work,
                           .slice = slice,
                           .kv_head = kv_head.value,
                           .partial = uint32_t(layer.parts.size()),
                           .head = uint32_t(layer.heads.size())});
    part.masses = layer.mass_floats;
    if (votes) layer.mass_floats += size_t{shape_.group} * (part.end - part.begin);
    layer.parts.push_back(part);
  };
  const uint32_t cell = kv.cells(id, kv_head), from = kv.VisibleFrom(id, cell);
  const uint32_t split = DecodeSplitTokens(cell + 1 - from);
  for (uint32_t begin = from; begin <= cell;) {
    const uint32_t end = std::min(cell + 1, (begin / split + 1) * split);
    add({.work = Work::kFull, .begin = begin, .end = end});
    begin = end;
  }
  if (kv.routed(id)) {
    const HeadWindows& windows = kv.windows(id, kv_head);
    const uint32_t codes = uint32_t(windows.attended().size()), omega = windows.omega();
    const uint32_t step = std::max(1u, CodeSplitTokens(codes * omega) / omega);
    for (uint32_t begin = 0; begin < codes; begin += step)
      add({.work = Work::kCodes, .begin = begin, .end = std::min(begin + step, codes)});
  }
  layer.heads.push_back({first_partial, uint32_t(layer.parts.size()) - first_partial});
}

void BatchAttention::PlanLayer(LayerId id, Layer& layer) const {
  layer.items.clear();
  layer.heads.clear();
  layer.parts.clear();
  layer.mass_floats = 0;
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
    const auto decode = [](const Item& item) {
      return item.work == Work::kFull || item.work == Work::kCodes;
    };
    return decode(a) != decode(b) ? decode(b) : !decode(a) && a.begin > b.begin;
  });
}

void BatchAttention::ReserveScratch(const BatchSlice& slice, const HeadKeys& keys) {
  const size_t group = shape_.group,
               codes = slice.kv->windows(keys.layer, keys.head).attended().size();
  const bool decodes = slice.tokens == 1, votes = slice.votes(keys.layer);
  const size_t rows = group * std::min(slice.tokens, QueryBlockTokens(shape_.group));
  // A decoded token's masses of all windows, or a prompt's of the codes.
  const size_t windows =
      decodes && votes ? slice.kv->full_mass(keys.layer, keys.head).size() + codes : codes;
  for (const auto& scratch : scratch_) {
    code_attention_.Reserve(rows, slice.kv->windows(keys.layer, keys.head), scratch->codes);
    if (!votes) continue;
    GrowRoom(scratch->masses, rows * windows);
    votes_.Reserve(rows, codes, scratch->votes);
  }
}

Status BatchAttention::MakeRoom(LayerRange layers) {
  size_t partials = 0, mass_floats = 0;
  for (uint32_t l = layers.first; l < layers.last; ++l) {
    partials = std::max(partials, layers_[l].parts.size());
    mass_floats = std::max(mass_floats, layers_[l].mass_floats);
    for (const BatchSlice& slice : slices_) {
      if (!slice.kv->routed(LayerId(l))) continue;
      for (uint32_t h = 0; h < shape_.kv_heads; ++h)
        ReserveScratch(slice, {slice.kv, LayerId(l), KvHeadId(h)});
    }
  }
  if (mass_floats * sizeof(float) > masses_.size_bytes()) {
    QEVICT_ASSIGN_OR_RETURN(masses_, AlignedBuffer::Allocate(mass_floats * 5 / 4 * sizeof(float)));
  }
  const size_t bytes = partials * partial_floats_ * sizeof(float);
  if (bytes > partials_.size_bytes()) {
    QEVICT_ASSIGN_OR_RETURN(partials_, AlignedBuffer::Allocate(bytes + bytes / 2));
  }
  return {};
}

Status BatchAttention::Bind(std::span<const BatchSlice> slices, LayerRange layers) {
  return OrOutOfMemory(
      "not enough memory for the working room of attention; lower --chunk or --ctx",
      [&] { return PlanAndMakeRoom(slices, layers); });
}

Status BatchAttention::PlanAndMakeRoom(std::span<const BatchSlice> slices, LayerRange layers) {
  slices_.assign(slices.begin(), slices.end());
  for (const BatchSlice& slice : slices_) {
    if (slice.tokens > 1 && slice.voters_from < slice.tokens && slice.kv->tracks_mass()) {
      QEVICT_RETURN_IF_ERROR(votes_.Prepare(slice.kv->geometry()));
    }
  }
  for (uint32_t l = layers.first; l < layers.last; ++l) {
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
  }
  return MakeRoom(layers);
}

void BatchAttention::Attend(LayerId id, RowsView q, float* out, size_t thread, size_t threads) {
  if (observer_ != nullptr) observer_->OnAttend(id, q, thread, threads);
  Layer& layer = layers_[id.value];
  Scratch& scratch = *scratch_[thread];
  scratch.loaded_head = scratch.turned_head = kNoHead;
  for (;;) {
    const uint32_t index = layer.next_item.fetch_add(1, std::memory_order_relaxed);
    if (index >= layer.items.size()) return;
    const Item& item = layer.items[index];
    switch (item.work) {
      case Work::kPrompt:
        AttendPrompt(id, item, q, out, scratch);
        break;
      case Work::kFull:
      case Work::kCodes: {
        const BatchSlice& slice = slices_[item.slice];
        const HeadKeys keys{slice.kv, id, KvHeadId(item.kv_head)};
        // A thread has several parts of a head one after another.
        if (scratch.loaded_head != item.head) {
          LoadQueries(q, slice.first_row, item.kv_head, scratch.q.data());
          scratch.loaded_head = item.head;
        }
        if (item.work == Work::kCodes && scratch.turned_head != item.head) {
          code_attention_.TurnQueries(keys.kv->windows(id, keys.head), shape_.group,
                                      scratch.q.data(), scratch.codes);
          scratch.turned_head = item.head;
        }
        const Part& part = layer.parts[item.partial];
        AttendPart(keys, part, Partial(item.partial),
                   slice.votes(id) ? masses_.as<float>() + part.masses : nullptr, scratch);
        FinishHead(id, item, out, scratch);
        break;
      }
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

void BatchAttention::AttendPart(const HeadKeys& keys, const Part& part, AttentionState state,
                                float* masses, Scratch& scratch) const {
  const size_t group = shape_.group, head_dim = shape_.head_dim, length = part.end - part.begin;
  if (part.work == Work::kCodes) {
    code_attention_.Attend({.rows = group,
                            .windows = &keys.kv->windows(keys.layer, keys.head),
                            .first = part.begin,
                            .last = part.end,
                            .state = state,
                            .masses = masses,
                            .mass_stride = length},
                           scratch.codes);
    return;
  }
  const auto ranges = keys.kv->Slots(keys.layer, part.begin, part.end);
  AttendDecodeArgs args{.group = group,
                        .head_dim = head_dim,
                        .q = scratch.q.data(),
                        .kv = keys.kv->View(keys.layer, keys.head),
                        .begin = ranges[0].begin,
                        .end = ranges[0].end,
                        .state = state,
                        .weights = masses,
                        .weight_stride = length};
  attend_decode_(args);
  if (ranges[1].begin == ranges[1].end) return;
  // The ring wraps inside this range. Rings are not routed, so nobody wants their masses.
  args.begin = ranges[1].begin;
  args.end = ranges[1].end;
  args.state = scratch.state();
  args.weights = nullptr;
  attend_decode_(args);
  MergeState(state, scratch.state(), group, head_dim);
}

void BatchAttention::GatherMasses(const HeadKeys& keys, const Part& part, PartMasses received,
                                  AttentionState whole, std::span<float> windows) const {
  const size_t length = part.end - part.begin, stride = windows.size() / shape_.group;
  const Geometry& g = keys.kv->geometry();
  for (size_t r = 0; r < shape_.group; ++r) {
    if (whole.d[r] == 0.0f) continue;
    const float share = std::exp(received.m[r] - whole.m[r]) / whole.d[r];
    const float* row = received.masses + r * length;
    float* into = windows.data() + r * stride;
    if (part.work == Work::kCodes) {
      into += keys.kv->full_mass(keys.layer, keys.head).size() + part.begin;
      for (size_t w = 0; w < length; ++w) into[w] += share * row[w];
      continue;
    }
    uint32_t cell = std::max(part.begin, g.sinks);
    for (uint32_t w = (cell - g.sinks) / g.omega; cell < part.end; ++w) {
      const uint32_t end = std::min(part.end, g.sinks + (w + 1) * g.omega);
      float sum = 0.0f;
      for (; cell < end; ++cell) sum += row[cell - part.begin];
      into[w] += share * sum;
    }
  }
}

// The last of a head's items merges them all, in order: codes first, in their own space.
void BatchAttention::FinishHead(LayerId id, const Item& item, float* out, Scratch& scratch) {
  Layer& layer = layers_[id.value];
  // acq_rel: the last one to finish sees the partial states that the others wrote.
  if (layer.unfinished[item.head].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const size_t group = shape_.group, head_dim = shape_.head_dim;
  const Head& head = layer.heads[item.head];
  const BatchSlice& slice = slices_[item.slice];
  const HeadKeys keys{slice.kv, id, KvHeadId(item.kv_head)};
  const AttentionState whole = scratch.state();
  ResetState(whole, group, head_dim);
  const auto merge = [&](Work work) {
    bool any = false;
    for (uint32_t p = head.first_partial; p < head.first_partial + head.partials; ++p) {
      if (layer.parts[p].work != work) continue;
      MergeState(whole, Partial(p), group, head_dim);
      any = true;
    }
    return any;
  };
  if (merge(Work::kCodes))
    code_attention_.TurnValuesBack(slice.kv->windows(id, keys.head), group, whole.o);
  merge(Work::kFull);
  if (slice.votes(id)) {
    const std::span<MassUnits> masses[] = {slice.kv->full_mass(id, keys.head),
                                           slice.kv->code_mass(id, keys.head)};
    const size_t windows = masses[0].size() + masses[1].size();
    const std::span rows(scratch.masses.data(), group * windows);
    std::ranges::fill(rows, 0.0f);
    for (uint32_t p = head.first_partial; p < head.first_partial + head.partials; ++p) {
      const Part& part = layer.parts[p];
      GatherMasses(keys, part, {masses_.as<float>() + part.masses, Partial(p).m}, whole, rows);
    }
    ReduceGroup(slice.kv->scoring().group, group, windows, rows.data(), windows);
    const float* mass = rows.data();
    for (const std::span<MassUnits>& tier : masses) {
      for (MassUnits& into : tier) into += ToMassUnits(*mass++);
    }
  }
  FinishState(whole, group, head_dim,
              out + (size_t{slice.first_row} * shape_.kv_heads + item.kv_head) * group * head_dim,
              head_dim);
}

void BatchAttention::Vote(const HeadKeys& keys, const Item& item, uint32_t voter,
                          Scratch& scratch) const {
  const size_t first_row = size_t{voter - item.begin} * shape_.group;
  const WindowVotes::Args args{.geometry = keys.kv->geometry(),
                               .group = keys.kv->scoring().group,
                               .kv = keys.kv->View(keys.layer, keys.head),
                               .first_cell = keys.kv->cells(keys.layer, keys.head) + voter,
                               .tokens = item.end - voter,
                               .q = scratch.q.data() + first_row * shape_.head_dim,
                               .m = scratch.m.data() + first_row,
                               .d = scratch.d.data() + first_row,
                               .masses = keys.kv->full_mass(keys.layer, keys.head),
                               .tiles = scratch.aligned_tiles()};
  votes_.Count(args, scratch.votes);
  const std::span<MassUnits> codes = keys.kv->code_mass(keys.layer, keys.head);
  votes_.Add(args,
             {.rows = scratch.masses.data() + first_row * codes.size(),
              .stride = codes.size(),
              .m = scratch.codes_m.data() + first_row,
              .windows = uint32_t(codes.size()),
              .masses = codes},
             scratch.votes);
}

void BatchAttention::AttendPrompt(LayerId layer, const Item& item, RowsView q, float* out,
                                  Scratch& scratch) {
  const BatchSlice& slice = slices_[item.slice];
  const size_t group = shape_.group, head_dim = shape_.head_dim, tokens = item.end - item.begin;
  const KvHeadId kv_head(item.kv_head);
  scratch.loaded_head = scratch.turned_head = kNoHead;
  const uint32_t first_cell = slice.kv->cells(layer, kv_head) + item.begin;
  for (size_t t = 0; t < tokens; ++t) {
    LoadQueries(q, slice.first_row + item.begin + t, item.kv_head,
                scratch.q.data() + t * group * head_dim);
  }
  const uint32_t voter = std::max(slice.voters_from, item.begin);
  const bool votes = slice.kv->tracks_mass(layer) && voter < item.end;
  const uint32_t codes =
      slice.kv->routed(layer) ? uint32_t(slice.kv->windows(layer, kv_head).attended().size()) : 0;
  if (codes != 0) {
    const HeadWindows& windows = slice.kv->windows(layer, kv_head);
    code_attention_.TurnQueries(windows, tokens * group, scratch.q.data(), scratch.codes);
    code_attention_.Attend({.rows = tokens * group,
                            .windows = &windows,
                            .first = 0,
                            .last = codes,
                            .state = scratch.state(),
                            .masses = votes ? scratch.masses.data() : nullptr,
                            .mass_stride = codes},
                           scratch.codes);
    code_attention_.TurnValuesBack(windows, tokens * group, scratch.o.data());
    if (votes) std::ranges::copy(scratch.m, scratch.codes_m.begin());
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
                     .bf16 = prompts_ == PromptArithmetic::kBf16,
                     .scratch = scratch.aligned_tiles()});
  }
  const size_t row_floats = shape_.kv_heads * group * head_dim;
  for (size_t t = 0; t < tokens; ++t) {
    const AttentionState token = {&scratch.m[t * group], &scratch.d[t * group],
                                  &scratch.o[t * group * head_dim]};
    float* row = out + (slice.first_row + item.begin + t) * row_floats;
    FinishState(token, group, head_dim, row + item.kv_head * group * head_dim, head_dim);
  }
  if (votes) Vote({slice.kv, layer, kv_head}, item, voter, scratch);
}

}  // namespace qevict
