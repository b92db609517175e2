// All SIMD levels of AttendPrefill; compiled once per level.
#include "kernels/attend_prefill/attend_prefill.h"
#include "kernels/simd/block_product.h"
#include "kernels/simd/softmax_tile.h"

namespace qevict {
namespace {

// Slots of one tile, K and V of which are in scratch as f32, and where its columns start.
struct Tile {
  size_t first_slot;  // a multiple of 16: column 0
  size_t begin, end;  // slots
  const float* k;     // [blocks][head_dim][16]
  const float* v;     // [columns][head_dim]
  float* scores;      // [kMaxStepRows][kPrefillKeyTile]
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

template <size_t kRows>
void AttendTile(const AttendPrefillArgs& args, size_t row, const Tile& tile) {
  const size_t head_dim = args.head_dim;
  const SlotRange seen = VisibleToAny(args, row, kRows, {tile.begin, tile.end});
  if (seen.empty()) return;
  float rescale[kRows];

  const size_t block = (seen.begin - tile.first_slot) / kKeyBlockTokens;
  const size_t end_block = (seen.end - tile.first_slot + kKeyBlockTokens - 1) / kKeyBlockTokens;
  const SlotRange columns{block * kKeyBlockTokens, end_block * kKeyBlockTokens};
  float* scores = tile.scores + columns.begin;
  ScoreTile<kRows>(
      {args.q + row * head_dim, head_dim},
      KeyTile<float>{tile.k + columns.begin * head_dim, end_block - block, head_dim, {}}, scores,
      kPrefillKeyTile);
  MaskRows<kRows>(args, row, tile, columns);
  SoftmaxTile<kRows>(scores, kPrefillKeyTile, columns.end - columns.begin, args.state.m + row,
                     args.state.d + row, rescale);
  const size_t first = seen.begin - tile.first_slot;
  AddValues<kRows>({tile.scores + first, kPrefillKeyTile},
                   ValueTile<float>{tile.v + first * head_dim, seen.end - seen.begin, head_dim, {}},
                   rescale, args.state.o + row * head_dim);
}

void AttendRows(const AttendPrefillArgs& args, size_t row, size_t rows, const Tile& tile) {
  WithRows(rows, [&]<size_t kRows>() { AttendTile<kRows>(args, row, tile); });
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

}  // namespace

void QEVICT_AT_LEVEL(AttendPrefill)(const AttendPrefillArgs& args) {
  const size_t head_dim = args.head_dim;
  float* k = args.scratch;
  float* v = k + kPrefillKeyTile * head_dim;
  float* scores = v + kPrefillKeyTile * head_dim;
  const size_t chunks = (args.rows + kMaxStepRows - 1) / kMaxStepRows;
  const SlotRange all = VisibleToAny(args, 0, args.rows, {args.begin, args.end});
  if (all.empty()) return;

  for (size_t first_slot = all.begin / kKeyBlockTokens * kKeyBlockTokens; first_slot < all.end;
       first_slot += kPrefillKeyTile) {
    const SlotRange range = Intersect(all, {first_slot, first_slot + kPrefillKeyTile});
    if (VisibleToAny(args, 0, args.rows, range).empty()) continue;
    const Tile tile{first_slot, range.begin, range.end, k, v, scores};
    const size_t columns = range.end - first_slot;
    LoadKeys(args, first_slot, columns, k);
    LoadValues(args, first_slot, columns, v);
    for (size_t chunk = 0, row = 0; chunk < chunks; ++chunk) {
      const size_t rows = (args.rows - row) / (chunks - chunk);  // as equal as they can be
      AttendRows(args, row, rows, tile);
      row += rows;
    }
  }
}

}  // namespace qevict
