// All SIMD levels of AttendDecode; compiled once per level.
#include "kernels/attend_decode/attend_decode.h"
#include "kernels/simd/block_product.h"
#include "kernels/simd/softmax_tile.h"

namespace qevict {
namespace {

// Scores exist for one tile of this many tokens at a time; K and V of a tile stay in L1 while row
// chunks pass over them.
constexpr size_t kTileTokens = 64;
// Rows of a chunk. Accumulators of kMaxRows rows and one block, the block's vectors and one factor
// fill 16 registers (AVX2) or at most 32 (AVX-512, NEON).
constexpr size_t kMaxRows = 6;

// Blocks of 16 columns per step: enough independent FMA chains to hide their latency, few enough
// for the registers.
constexpr size_t BlocksFor(size_t rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }

struct Tile {
  size_t first_block, blocks;  // K blocks
  size_t begin, end;           // slots, within those blocks
};

template <size_t kRows, size_t kBlocks>
HWY_INLINE void ScoreBlocks(const AttendDecodeArgs& args, size_t row, const F16* k, float* scores) {
  Accumulators<kRows, kBlocks> c;
  c.Clear();
  AddProduct({args.q + row * args.head_dim, args.head_dim},
             Columns<F16>{k, kKeyBlockTokens, args.head_dim * kKeyBlockTokens}, args.head_dim, c);
  c.Store(scores, kTileTokens);
}

template <size_t kRows, size_t kBlocks>
HWY_INLINE void AddValues(Rows weights, Columns<F16> v, size_t tokens, const float* rescale,
                          Rows o) {
  Accumulators<kRows, kBlocks> c;
  c.Load(o.base, o.stride, rescale);
  AddProduct(weights, v, tokens, c);
  c.Store(const_cast<float*>(o.base), o.stride);
}

template <size_t kRows>
void AttendTile(const AttendDecodeArgs& args, size_t row, const Tile& tile) {
  constexpr size_t kBlocks = BlocksFor(kRows);
  const size_t head_dim = args.head_dim;
  HWY_ALIGN float scores[kRows * kTileTokens];
  float rescale[kRows];

  const F16* k = args.kv.k + tile.first_block * kKeyBlockTokens * head_dim;
  size_t block = 0;
  for (; block + kBlocks <= tile.blocks; block += kBlocks) {
    ScoreBlocks<kRows, kBlocks>(args, row, k + block * kKeyBlockTokens * head_dim,
                                scores + block * kKeyBlockTokens);
  }
  for (; block < tile.blocks; ++block) {
    ScoreBlocks<kRows, 1>(args, row, k + block * kKeyBlockTokens * head_dim,
                          scores + block * kKeyBlockTokens);
  }

  const size_t first_slot = tile.first_block * kKeyBlockTokens,
               columns = tile.blocks * kKeyBlockTokens;
  for (size_t r = 0; r < kRows; ++r) {
    float* s = scores + r * kTileTokens;
    for (size_t t = 0; t < tile.begin - first_slot; ++t) s[t] = kMinusInfinity;
    for (size_t t = tile.end - first_slot; t < columns; ++t) s[t] = kMinusInfinity;
    rescale[r] = SoftmaxTile(s, columns, args.state.m[row + r], args.state.d[row + r]);
  }

  const Rows weights{scores + (tile.begin - first_slot), kTileTokens};
  const F16* v = args.kv.v + tile.begin * head_dim;
  float* o = args.state.o + row * head_dim;
  const size_t tokens = tile.end - tile.begin;
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

void AttendRows(const AttendDecodeArgs& args, size_t row, size_t rows, const Tile& tile) {
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

}  // namespace

void QEVICT_AT_LEVEL(AttendDecode)(const AttendDecodeArgs& args) {
  for (size_t r = 0; r < args.group; ++r) {
    args.state.m[r] = kMinusInfinity;
    args.state.d[r] = 0.0f;
  }
  for (size_t i = 0; i < args.group * args.head_dim; ++i) args.state.o[i] = 0.0f;

  const size_t chunks = (args.group + kMaxRows - 1) / kMaxRows;
  for (size_t slot = args.begin; slot < args.end;) {
    const size_t first_block = slot / kKeyBlockTokens;
    const size_t tile_end = first_block * kKeyBlockTokens + kTileTokens;
    Tile tile{first_block, 0, slot, tile_end < args.end ? tile_end : args.end};
    tile.blocks = (tile.end + kKeyBlockTokens - 1) / kKeyBlockTokens - first_block;
    for (size_t chunk = 0, row = 0; chunk < chunks; ++chunk) {
      const size_t rows = (args.group - row) / (chunks - chunk);  // as equal as they can be
      AttendRows(args, row, rows, tile);
      row += rows;
    }
    slot = tile.end;
  }
}

}  // namespace qevict
