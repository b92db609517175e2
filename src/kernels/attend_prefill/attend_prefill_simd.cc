// All SIMD levels of AttendPrefill; compiled once per level.
#include "kernels/attend_prefill/attend_prefill.h"
#include "kernels/simd/block_product.h"
#include "kernels/simd/softmax_tile.h"

namespace qevict {
namespace {

constexpr size_t kMaxRows = 6;
constexpr size_t BlocksFor(size_t rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }

// Slots of one tile, K and V of which are in scratch as f32, and where its columns start.
struct Tile {
  size_t first_slot;  // a multiple of 16: column 0
  size_t begin, end;  // slots
  const float* k;     // [blocks][head_dim][16]
  const float* v;     // [columns][head_dim]
  float* scores;      // [kMaxRows][kPrefillKeyTile]
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

template <size_t kRows, size_t kBlocks>
HWY_INLINE void ScoreBlocks(const AttendPrefillArgs& args, size_t row, const float* k,
                            float* scores) {
  Accumulators<kRows, kBlocks> c;
  c.Clear();
  AddProduct({args.q + row * args.head_dim, args.head_dim},
             Columns<float>{k, kKeyBlockTokens, args.head_dim * kKeyBlockTokens}, args.head_dim, c);
  c.Store(scores, kPrefillKeyTile);
}

template <size_t kRows, size_t kBlocks>
HWY_INLINE void AddValues(Rows weights, Columns<float> v, size_t tokens, const float* rescale,
                          Rows o) {
  Accumulators<kRows, kBlocks> c;
  c.Load(o.base, o.stride, rescale);
  AddProduct(weights, v, tokens, c);
  c.Store(const_cast<float*>(o.base), o.stride);
}

// Masks, then turns the scores of one row into weights; columns [first, last) are those that were
// computed.
float Weigh(const AttendPrefillArgs& args, size_t row, const Tile& tile, SlotRange columns,
            float* scores) {
  SlotRange visible = VisibleTo(args, row, {tile.begin, tile.end});
  if (visible.empty()) {
    for (size_t t = columns.begin; t < columns.end; ++t) scores[t] = 0.0f;
    return 1.0f;
  }
  for (size_t t = columns.begin; t < visible.begin - tile.first_slot; ++t)
    scores[t] = kMinusInfinity;
  for (size_t t = visible.end - tile.first_slot; t < columns.end; ++t) scores[t] = kMinusInfinity;
  return SoftmaxTile(scores + columns.begin, columns.end - columns.begin, args.state.m[row],
                     args.state.d[row]);
}

template <size_t kRows>
void AttendTile(const AttendPrefillArgs& args, size_t row, const Tile& tile) {
  constexpr size_t kBlocks = BlocksFor(kRows);
  const size_t head_dim = args.head_dim;
  const SlotRange seen = VisibleToAny(args, row, kRows, {tile.begin, tile.end});
  if (seen.empty()) return;
  float rescale[kRows];

  size_t block = (seen.begin - tile.first_slot) / kKeyBlockTokens;
  const size_t last_block = (seen.end - tile.first_slot + kKeyBlockTokens - 1) / kKeyBlockTokens;
  const SlotRange columns{block * kKeyBlockTokens, last_block * kKeyBlockTokens};
  for (; block + kBlocks <= last_block; block += kBlocks) {
    ScoreBlocks<kRows, kBlocks>(args, row, tile.k + block * kKeyBlockTokens * head_dim,
                                tile.scores + block * kKeyBlockTokens);
  }
  for (; block < last_block; ++block) {
    ScoreBlocks<kRows, 1>(args, row, tile.k + block * kKeyBlockTokens * head_dim,
                          tile.scores + block * kKeyBlockTokens);
  }
  for (size_t r = 0; r < kRows; ++r) {
    rescale[r] = Weigh(args, row + r, tile, columns, tile.scores + r * kPrefillKeyTile);
  }

  const size_t first = seen.begin - tile.first_slot, tokens = seen.end - seen.begin;
  const Rows weights{tile.scores + first, kPrefillKeyTile};
  const float* v = tile.v + first * head_dim;
  float* o = args.state.o + row * head_dim;
  size_t c = 0;
  for (; c + kBlocks * kKeyBlockTokens <= head_dim; c += kBlocks * kKeyBlockTokens) {
    AddValues<kRows, kBlocks>(weights, {v + c, head_dim, kKeyBlockTokens}, tokens, rescale,
                              {o + c, head_dim});
  }
  for (; c < head_dim; c += kKeyBlockTokens) {
    AddValues<kRows, 1>(weights, {v + c, head_dim, kKeyBlockTokens}, tokens, rescale,
                        {o + c, head_dim});
  }
}

void AttendRows(const AttendPrefillArgs& args, size_t row, size_t rows, const Tile& tile) {
  static_assert(kMaxRows == 6);
  switch (rows) {
    case 1:
      return AttendTile<1>(args, row, tile);
    case 2:
      return AttendTile<2>(args, row, tile);
    case 3:
      return AttendTile<3>(args, row, tile);
    case 4:
      return AttendTile<4>(args, row, tile);
    case 5:
      return AttendTile<5>(args, row, tile);
    case 6:
      return AttendTile<6>(args, row, tile);
  }
}

void Widen(const F16* from, size_t count, float* to) {
  for (size_t i = 0; i < count; i += kFloatLanes) StoreFloats(LoadFloats(from + i), to + i);
}

}  // namespace

void QEVICT_AT_LEVEL(AttendPrefill)(const AttendPrefillArgs& args) {
  const size_t head_dim = args.head_dim;
  float* k = args.scratch;
  float* v = k + kPrefillKeyTile * head_dim;
  float* scores = v + kPrefillKeyTile * head_dim;
  const size_t chunks = (args.rows + kMaxRows - 1) / kMaxRows;
  const SlotRange all = VisibleToAny(args, 0, args.rows, {args.begin, args.end});
  if (all.empty()) return;

  for (size_t first_slot = all.begin / kKeyBlockTokens * kKeyBlockTokens; first_slot < all.end;
       first_slot += kPrefillKeyTile) {
    const SlotRange range = Intersect(all, {first_slot, first_slot + kPrefillKeyTile});
    if (VisibleToAny(args, 0, args.rows, range).empty()) continue;
    const Tile tile{first_slot, range.begin, range.end, k, v, scores};
    const size_t columns = range.end - first_slot;
    const size_t key_columns = (columns + kKeyBlockTokens - 1) / kKeyBlockTokens * kKeyBlockTokens;
    Widen(args.kv.k + first_slot * head_dim, key_columns * head_dim, k);
    Widen(args.kv.v + first_slot * head_dim, columns * head_dim, v);
    for (size_t chunk = 0, row = 0; chunk < chunks; ++chunk) {
      const size_t rows = (args.rows - row) / (chunks - chunk);  // as equal as they can be
      AttendRows(args, row, rows, tile);
      row += rows;
    }
  }
}

}  // namespace qevict
