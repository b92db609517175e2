// All SIMD levels of AttendPrefill; compiled once per level.
#include "kernels/attend_prefill/attend_prefill.h"
#include "kernels/simd/block_product.h"
#include "kernels/simd/pair_product.h"
#include "kernels/simd/softmax_tile.h"

namespace qevict {
namespace {

// Slots of one tile, K and V of which are in scratch as f32, and where its columns start.
struct Tile {
  size_t first_slot = 0;      // a multiple of 16: column 0
  size_t begin = 0, end = 0;  // slots
  const float* k = nullptr;   // [blocks][head_dim][16]
  const float* v = nullptr;   // [columns][head_dim]
  float* scores = nullptr;    // [kMaxStepRows][kPrefillKeyTile]
#if QEVICT_HAVE_PAIRS
  const Pair* k_pairs = nullptr;  // minus the mean
  const Pair* v_pairs = nullptr;
  const float* mean = nullptr;    // [head_dim]
  const Pair* q_pairs = nullptr;  // [rows][head_dim / 2]
#endif
};

struct SlotRange {
  size_t begin, end;
  bool empty() const { return begin >= end; }
};

SlotRange Intersect(SlotRange a, SlotRange b) {
  return {a.begin > b.begin ? a.begin : b.begin, a.end < b.end ? a.end : b.end};
}

SlotRange VisibleTo(const AttendPrefillArgs& args, size_t row, SlotRange tile) {
  return Intersect({args.row_begin[row], args.row_end[row]}, tile);
}

// The smallest range that holds what any of the rows sees.
SlotRange VisibleToAny(const AttendPrefillArgs& args, size_t row, size_t rows, SlotRange tile) {
  SlotRange hull{tile.end, tile.begin};
  for (size_t r = row; r < row + rows; ++r) {
    const SlotRange visible = VisibleTo(args, r, tile);
    if (visible.empty()) continue;
    if (visible.begin < hull.begin) hull.begin = visible.begin;
    if (visible.end > hull.end) hull.end = visible.end;
  }
  return hull;
}

// What all rows of the call see.
[[maybe_unused]] SlotRange VisibleToEvery(const AttendPrefillArgs& args, SlotRange tile) {
  for (size_t r = 0; r < args.rows; ++r) tile = VisibleTo(args, r, tile);
  return tile.empty() ? SlotRange{tile.begin, tile.begin} : tile;
}

// Rows of one chunk on one tile whose rows do not all see all columns: slots outside a row's range
// get no weight.
template <size_t kRows>
void MaskRows(const AttendPrefillArgs& args, size_t row, const Tile& tile, SlotRange columns) {
  for (size_t r = 0; r < kRows; ++r) {
    float* scores = tile.scores + r * kPrefillKeyTile;
    const SlotRange visible = VisibleTo(args, row + r, {tile.begin, tile.end});
    const size_t begin = visible.empty() ? columns.end : visible.begin - tile.first_slot;
    const size_t end = visible.empty() ? columns.end : visible.end - tile.first_slot;
    for (size_t t = columns.begin; t < begin; ++t) scores[t] = kMinusInfinity;
    for (size_t t = end; t < columns.end; ++t) scores[t] = kMinusInfinity;
  }
}

// What a call multiplies in.
struct InFloats {
  static constexpr bool kPairs = false;
};
struct InPairs {
  static constexpr bool kPairs = true;
};

struct TileColumns {
  SlotRange seen;     // slots that any row sees
  SlotRange columns;  // of the tile, in whole blocks; a row's weights are 0 where it sees nothing
};

template <size_t kRows>
void ScoreRows(InFloats /*mode*/, const AttendPrefillArgs& args, size_t row, const Tile& tile,
               SlotRange columns) {
  const size_t head_dim = args.head_dim;
  ScoreTile<kRows>({args.q + row * head_dim, head_dim},
                   KeyTile<float>{tile.k + columns.begin * head_dim,
                                  (columns.end - columns.begin) / kKeyBlockTokens,
                                  head_dim,
                                  {}},
                   tile.scores + columns.begin, kPrefillKeyTile);
}

template <size_t kRows>
void AddRows(InFloats /*mode*/, const AttendPrefillArgs& args, size_t row, const Tile& tile,
             TileColumns at, const float* rescale) {
  const size_t head_dim = args.head_dim, first = at.seen.begin - tile.first_slot;
  AddValues<kRows>(
      {tile.scores + first, kPrefillKeyTile},
      ValueTile<float>{tile.v + first * head_dim, at.seen.end - at.seen.begin, head_dim, {}},
      rescale, args.state.o + row * head_dim);
}

#if QEVICT_HAVE_PAIRS

template <size_t kRows>
void ScoreRows(InPairs /*mode*/, const AttendPrefillArgs& args, size_t row, const Tile& tile,
               SlotRange columns) {
  const size_t head_dim = args.head_dim;
  float offset[kRows];
  for (size_t r = 0; r < kRows; ++r) {
    const float* q = args.q + (row + r) * head_dim;
    FloatVec sum = hn::Zero(FloatTag());
    for (size_t c = 0; c < head_dim; c += kFloatLanes)
      sum = hn::MulAdd(LoadFloats(q + c), LoadFloats(tile.mean + c), sum);
    offset[r] = hn::GetLane(hn::SumOfLanes(FloatTag(), sum));
  }
  ScoreTile<kRows>({tile.q_pairs + row * head_dim / 2, head_dim / 2},
                   KeyTile<Pair>{tile.k_pairs + columns.begin * head_dim / 2,
                                 (columns.end - columns.begin) / kKeyBlockTokens,
                                 head_dim / 2,
                                 {}},
                   tile.scores + columns.begin, kPrefillKeyTile, offset);
}

template <size_t kRows>
void AddRows(InPairs /*mode*/, const AttendPrefillArgs& args, size_t row, const Tile& tile,
             TileColumns at, const float* rescale) {
  const size_t head_dim = args.head_dim, count = at.columns.end - at.columns.begin;
  HWY_ALIGN Pair weights[kRows * kPrefillKeyTile / 2];
  for (size_t r = 0; r < kRows; ++r) {
    NarrowFloats(tile.scores + r * kPrefillKeyTile + at.columns.begin, count,
                 weights + r * kPrefillKeyTile / 2);
  }
  AddValues<kRows>(
      {weights, kPrefillKeyTile / 2},
      ValueTile<Pair>{tile.v_pairs + at.columns.begin * head_dim / 2, count / 2, head_dim, {}},
      rescale, args.state.o + row * head_dim);
}

// The mean of keys that every row of the call sees: the result of a row depends on no key that it
// does not see. 0 where there are none.
void MeanKey(const float* k, SlotRange columns, size_t head_dim, float* mean) {
  const FloatTag tag;
  const size_t count = columns.empty() ? 0 : columns.end - columns.begin;
  for (size_t c = 0; c < head_dim; ++c) {
    FloatVec sum = hn::Zero(tag);
    for (size_t t = columns.begin; t < columns.end;) {
      const size_t block = t / kKeyBlockTokens, lane = t % kKeyBlockTokens;
      const size_t left = kKeyBlockTokens - lane, until = columns.end - t;
      const size_t lanes = left < until ? left : until;
      const FloatVec keys = LoadFloats(k + (block * head_dim + c) * kKeyBlockTokens);
      const auto inside = hn::AndNot(hn::FirstN(tag, lane), hn::FirstN(tag, lane + lanes));
      sum = hn::Add(sum, hn::IfThenElseZero(inside, keys));
      t += lanes;
    }
    mean[c] = count == 0 ? 0.0f : hn::GetLane(hn::SumOfLanes(tag, sum)) / float(count);
  }
}

// Columns of an f32 tile to pairs; values outside of `valid` become 0, for no row sees them and a
// weight of 0 makes a 0 only of a number.
void NarrowTile(const float* k, float* v, size_t columns, SlotRange valid, size_t head_dim,
                const float* mean, Pair* k_pairs, Pair* v_pairs) {
  const FloatTag tag;
  for (size_t c = 0; c < head_dim; c += 2) {
    const FloatVec low = hn::Set(tag, mean[c]), high = hn::Set(tag, mean[c + 1]);
    for (size_t b = 0; b < columns / kKeyBlockTokens; ++b) {
      const float* channel = k + (b * head_dim + c) * kKeyBlockTokens;
      StorePairs(MakePairs(hn::Sub(LoadFloats(channel), low),
                           hn::Sub(LoadFloats(channel + kKeyBlockTokens), high)),
                 k_pairs + (b * head_dim + c) / 2 * kKeyBlockTokens);
    }
  }
  for (size_t i = 0; i < valid.begin * head_dim; ++i) v[i] = 0.0f;
  for (size_t i = valid.end * head_dim; i < columns * head_dim; ++i) v[i] = 0.0f;
  for (size_t t = 0; t < columns; t += 2) {
    for (size_t c = 0; c < head_dim; c += kFloatLanes) {
      const float* value = v + t * head_dim + c;
      StorePairs(MakePairs(LoadFloats(value), LoadFloats(value + head_dim)),
                 v_pairs + t / 2 * head_dim + c);
    }
  }
}

#endif

template <typename Mode, size_t kRows>
void AttendTile(const AttendPrefillArgs& args, size_t row, const Tile& tile) {
  const SlotRange seen = VisibleToAny(args, row, kRows, {tile.begin, tile.end});
  if (seen.empty()) return;
  float rescale[kRows];

  const size_t block = (seen.begin - tile.first_slot) / kKeyBlockTokens;
  const size_t end_block = (seen.end - tile.first_slot + kKeyBlockTokens - 1) / kKeyBlockTokens;
  const SlotRange columns{block * kKeyBlockTokens, end_block * kKeyBlockTokens};
  float* scores = tile.scores + columns.begin;
  ScoreRows<kRows>(Mode(), args, row, tile, columns);
  MaskRows<kRows>(args, row, tile, columns);
  SoftmaxTile<kRows>(scores, kPrefillKeyTile, columns.end - columns.begin, args.state.m + row,
                     args.state.d + row, rescale);
  AddRows<kRows>(Mode(), args, row, tile, {seen, columns}, rescale);
}

template <typename Mode>
void AttendRows(const AttendPrefillArgs& args, size_t row, size_t rows, const Tile& tile) {
  WithRows(rows, [&]<size_t kRows>() { AttendTile<Mode, kRows>(args, row, tile); });
}

void Widen(const F16* from, size_t count, float* to) {
  for (size_t i = 0; i < count; i += kFloatLanes) StoreFloats(LoadFloats(from + i), to + i);
}

// int8 keys of whole blocks, or values of `tokens` tokens, each times the scale of its token and
// group; both begin with block `block` of the head.
void WidenKeys(Q8View keys, size_t block, size_t blocks, size_t head_dim, float* to) {
  const F16* scales = keys.scales + block * Q8Groups(head_dim) * kKeyBlockTokens;
  const int8_t* from = keys.codes + block * head_dim * kKeyBlockTokens;
  for (size_t b = 0; b < blocks; ++b) {
    for (size_t c = 0; c < head_dim; ++c, from += kKeyBlockTokens, to += kKeyBlockTokens) {
      if (c != 0 && c % kQ8GroupChannels == 0) scales += kKeyBlockTokens;
      for (size_t i = 0; i < kKeyBlockTokens; i += kFloatLanes) {
        StoreFloats(hn::Mul(LoadFloats(from + i), LoadFloats(scales + i)), to + i);
      }
    }
    scales += kKeyBlockTokens;
  }
}
void WidenValues(Q8View values, size_t block, size_t tokens, size_t head_dim, float* to) {
  const F16* scales = values.scales + block * Q8Groups(head_dim) * kKeyBlockTokens;
  const int8_t* from = values.codes + block * kKeyBlockTokens * head_dim;
  HWY_ALIGN float block_scales[Q8Groups(kMaxHeadDim) * kKeyBlockTokens];
  for (size_t t = 0; t < tokens; ++t, from += head_dim, to += head_dim) {
    if (t % kKeyBlockTokens == 0) {
      Widen(scales, Q8Groups(head_dim) * kKeyBlockTokens, block_scales);
      scales += Q8Groups(head_dim) * kKeyBlockTokens;
    }
    const float* scale = block_scales + t % kKeyBlockTokens;
    for (size_t c = 0; c < head_dim; c += kFloatLanes) {
      const FloatVec factor = hn::Set(FloatTag(), scale[c / kQ8GroupChannels * kKeyBlockTokens]);
      StoreFloats(hn::Mul(LoadFloats(from + c), factor), to + c);
    }
  }
}

// Slots from `first_slot` on, in whole blocks.
void LoadKeys(const AttendPrefillArgs& args, size_t first_slot, size_t columns, float* k) {
  const size_t blocks = (columns + kKeyBlockTokens - 1) / kKeyBlockTokens;
  if (args.kv.k != nullptr) {
    Widen(args.kv.k + first_slot * args.head_dim, blocks * kKeyBlockTokens * args.head_dim, k);
  } else {
    WidenKeys(args.kv.k8, first_slot / kKeyBlockTokens, blocks, args.head_dim, k);
  }
}
void LoadValues(const AttendPrefillArgs& args, size_t first_slot, size_t columns, float* v) {
  if (args.kv.v != nullptr) {
    Widen(args.kv.v + first_slot * args.head_dim, columns * args.head_dim, v);
  } else {
    WidenValues(args.kv.v8, first_slot / kKeyBlockTokens, columns, args.head_dim, v);
  }
}

template <typename Mode>
void AttendAll(const AttendPrefillArgs& args) {
  const size_t head_dim = args.head_dim;
  float* k = args.scratch;
  float* v = k + kPrefillKeyTile * head_dim;
  Tile tile{.k = k, .v = v, .scores = v + kPrefillKeyTile * head_dim};
#if QEVICT_HAVE_PAIRS
  constexpr bool kPairs = Mode::kPairs;
  float* mean = tile.scores + kPrefillKeyTile * kPrefillMaxRows;
  auto* k_pairs = reinterpret_cast<Pair*>(mean + head_dim);
  Pair* v_pairs = k_pairs + kPrefillKeyTile * head_dim / 2;
  Pair* q_pairs = v_pairs + kPrefillKeyTile * head_dim / 2;
  tile.k_pairs = k_pairs;
  tile.v_pairs = v_pairs;
  tile.mean = mean;
  tile.q_pairs = q_pairs;
  if constexpr (kPairs) NarrowFloats(args.q, args.rows * head_dim, q_pairs);
#endif
  const size_t chunks = (args.rows + kMaxStepRows - 1) / kMaxStepRows;
  const SlotRange all = VisibleToAny(args, 0, args.rows, {args.begin, args.end});
  if (all.empty()) return;

  for (size_t first_slot = all.begin / kKeyBlockTokens * kKeyBlockTokens; first_slot < all.end;
       first_slot += kPrefillKeyTile) {
    const SlotRange range = Intersect(all, {first_slot, first_slot + kPrefillKeyTile});
    if (VisibleToAny(args, 0, args.rows, range).empty()) continue;
    tile.first_slot = first_slot;
    tile.begin = range.begin;
    tile.end = range.end;
    const size_t columns = range.end - first_slot;
    LoadKeys(args, first_slot, columns, k);
    LoadValues(args, first_slot, columns, v);
#if QEVICT_HAVE_PAIRS
    if constexpr (kPairs) {
      const size_t blocks = (columns + kKeyBlockTokens - 1) / kKeyBlockTokens;
      const SlotRange seen_by_all = VisibleToEvery(args, range);
      MeanKey(k, {seen_by_all.begin - first_slot, seen_by_all.end - first_slot}, head_dim, mean);
      NarrowTile(k, v, blocks * kKeyBlockTokens, {range.begin - first_slot, columns}, head_dim,
                 mean, k_pairs, v_pairs);
    }
#endif
    for (size_t chunk = 0, row = 0; chunk < chunks; ++chunk) {
      const size_t rows = (args.rows - row) / (chunks - chunk);  // as equal as they can be
      AttendRows<Mode>(args, row, rows, tile);
      row += rows;
    }
  }
}

}  // namespace

void QEVICT_AT_LEVEL(AttendPrefill)(const AttendPrefillArgs& args) {
#if QEVICT_HAVE_PAIRS
  if (args.bf16) return AttendAll<InPairs>(args);
#endif
  AttendAll<InFloats>(args);
}

}  // namespace qevict
