// All SIMD levels of AttendDecode; compiled once per level.
#include "kernels/attend_decode/attend_decode.h"
#include "kernels/simd/block_product.h"
#include "kernels/simd/softmax_tile.h"

namespace qevict {
namespace {

// Scores exist for one tile of this many tokens at a time.
constexpr size_t kTileTokens = 64;
static_assert(kTileTokens <= kQ8TileBlocks * kKeyBlockTokens);

struct Tile {
  size_t first_block, blocks;  // K blocks
  size_t begin, end;           // slots, within those blocks
};

constexpr size_t kMaxGroups = Q8Groups(kMaxHeadDim);

// weights[g, r, t] = scores[r, t] * the scale of group g of token t's value, for whole blocks; what
// stands outside of the range is not read.
template <size_t kRows>
HWY_INLINE void ScaleWeights(const AttendDecodeArgs& args, const Tile& tile, const float* scores,
                             float* weights) {
  const size_t groups = Q8Groups(args.head_dim);
  const F16* scales = args.kv.v8.scales + tile.first_block * groups * kKeyBlockTokens;
  for (size_t block = 0; block < tile.blocks; ++block) {
    for (size_t g = 0; g < groups; ++g, scales += kKeyBlockTokens) {
      for (size_t i = 0; i < kKeyBlockTokens; i += kFloatLanes) {
        const FloatVec scale = LoadFloats(scales + i);
        const size_t t = block * kKeyBlockTokens + i;
        for (size_t r = 0; r < kRows; ++r) {
          StoreFloats(hn::Mul(scale, LoadFloats(scores + r * kTileTokens + t)),
                      weights + (g * kRows + r) * kTileTokens + t);
        }
      }
    }
  }
}

// The head's keys and values as `Element`, F16 or int8_t.
template <typename Element, size_t kRows>
void AttendTile(const AttendDecodeArgs& args, size_t row, const Tile& tile) {
  const size_t head_dim = args.head_dim;
  HWY_ALIGN float scores[kRows * kTileTokens];
  float rescale[kRows];

  const Rows q{args.q + row * head_dim, head_dim};
  const size_t k_offset = tile.first_block * kKeyBlockTokens * head_dim;
  // The first chunk of rows asks for the next tile; the others find it on its way.
  const size_t ahead = row == 0 && tile.end < args.end ? kTileTokens * head_dim : 0;
  if constexpr (sizeof(Element) == sizeof(int8_t)) {
    const int8_t* k = args.kv.k8.codes + k_offset;
    const F16* scales = args.kv.k8.scales + tile.first_block * Q8Groups(head_dim) * kKeyBlockTokens;
    ScoreTile<kRows>(q, Q8KeyTile{k, scales, tile.blocks, head_dim, Prefetch::Ahead(k, ahead)},
                     scores, kTileTokens);
  } else {
    const F16* k = args.kv.k + k_offset;
    ScoreTile<kRows>(q, KeyTile<F16>{k, tile.blocks, head_dim, Prefetch::Ahead(k, ahead)}, scores,
                     kTileTokens);
  }

  const size_t first_slot = tile.first_block * kKeyBlockTokens;
  const size_t begin = tile.begin - first_slot, end = tile.end - first_slot;
  const size_t columns = tile.blocks * kKeyBlockTokens;
  for (size_t r = 0; r < kRows; ++r) {
    float* s = scores + r * kTileTokens;
    for (size_t t = 0; t < begin; ++t) s[t] = kMinusInfinity;
    for (size_t t = end; t < columns; ++t) s[t] = kMinusInfinity;
  }
  SoftmaxTile<kRows>(scores, kTileTokens, columns, args.state.m + row, args.state.d + row, rescale);

  if (args.weights != nullptr) {
    for (size_t r = 0; r < kRows; ++r) {
      float* weights = args.weights + (row + r) * args.weight_stride;
      const size_t done = tile.begin - args.begin;
      // Rare after the first tiles: a maximum over random scores grows ever more seldom.
      for (size_t t = 0; rescale[r] != 1.0f && t < done; ++t) weights[t] *= rescale[r];
      for (size_t t = begin; t < end; ++t) {
        weights[done + t - begin] = scores[r * kTileTokens + t];
      }
    }
  }

  float* o = args.state.o + row * head_dim;
  if constexpr (sizeof(Element) == sizeof(int8_t)) {
    const int8_t* v = args.kv.v8.codes + tile.begin * head_dim;
    HWY_ALIGN float weights[kMaxGroups * kRows * kTileTokens];
    ScaleWeights<kRows>(args, tile, scores, weights);
    AddValues<kRows>({weights + begin, kTileTokens, kRows * kTileTokens},
                     Q8ValueTile{v, end - begin, head_dim, Prefetch::Ahead(v, ahead)}, rescale, o);
  } else {
    const F16* v = args.kv.v + tile.begin * head_dim;
    AddValues<kRows>({scores + begin, kTileTokens},
                     ValueTile<F16>{v, end - begin, head_dim, Prefetch::Ahead(v, ahead)}, rescale,
                     o);
  }
}

template <typename Element>
void AttendRows(const AttendDecodeArgs& args, size_t row, size_t rows, const Tile& tile) {
  WithRows(rows, [&]<size_t kRows>() { AttendTile<Element, kRows>(args, row, tile); });
}

template <typename Element>
void AttendRange(const AttendDecodeArgs& args) {
  const size_t chunks = (args.group + kMaxStepRows - 1) / kMaxStepRows;
  for (size_t slot = args.begin; slot < args.end;) {
    const size_t first_block = slot / kKeyBlockTokens;
    const size_t tile_end = first_block * kKeyBlockTokens + kTileTokens;
    Tile tile{first_block, 0, slot, tile_end < args.end ? tile_end : args.end};
    tile.blocks = (tile.end + kKeyBlockTokens - 1) / kKeyBlockTokens - first_block;
    for (size_t chunk = 0, row = 0; chunk < chunks; ++chunk) {
      const size_t rows = (args.group - row) / (chunks - chunk);  // as equal as they can be
      AttendRows<Element>(args, row, rows, tile);
      row += rows;
    }
    slot = tile.end;
  }
}

}  // namespace

void QEVICT_AT_LEVEL(AttendDecode)(const AttendDecodeArgs& args) {
  for (size_t r = 0; r < args.group; ++r) {
    args.state.m[r] = kMinusInfinity;
    args.state.d[r] = 0.0f;
  }
  for (size_t i = 0; i < args.group * args.head_dim; ++i) args.state.o[i] = 0.0f;
  if (args.kv.k != nullptr) return AttendRange<F16>(args);
  AttendRange<int8_t>(args);
}

}  // namespace qevict
