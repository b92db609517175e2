// The product of simd/block_product.h in bf16, on CPUs that multiply pairs of bf16 and add both
// products to an f32 (AVX512-BF16): twice the rate of f32. A pair holds two neighbours along the
// sum, the first in its low half.
#pragma once

#include "kernels/simd/block_product.h"

#if defined(__AVX512BF16__)
#define QEVICT_HAVE_PAIRS 1

namespace qevict {
namespace {

struct Pair {
  uint32_t bits;
};
using PairTag = hn::Rebind<uint32_t, FloatTag>;
using PairVec = hn::Vec<PairTag>;

HWY_INLINE PairVec LoadPairs(const Pair* from) {
  return hn::LoadU(PairTag(), reinterpret_cast<const uint32_t*>(from));
}
HWY_INLINE void StorePairs(PairVec v, Pair* to) {
  hn::StoreU(v, PairTag(), reinterpret_cast<uint32_t*>(to));
}
// Lane by lane.
HWY_INLINE PairVec MakePairs(FloatVec low, FloatVec high) {
  const auto widen = [](FloatVec v) {
    return PairVec{_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(v.raw))};
  };
  return hn::Or(widen(low), hn::ShiftLeft<16>(widen(high)));
}
// Pairs of neighbours, `count` floats, a multiple of 16.
HWY_INLINE void NarrowFloats(const float* from, size_t count, Pair* to) {
  for (size_t i = 0; i < count; i += 2 * kFloatLanes, to += kFloatLanes) {
    if (i + kFloatLanes < count) {
      StorePairs(PairVec{(__m512i)_mm512_cvtne2ps_pbh(LoadFloats(from + i + kFloatLanes).raw,
                                                      LoadFloats(from + i).raw)},
                 to);
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                          (__m256i)_mm512_cvtneps_pbh(LoadFloats(from + i).raw));
    }
  }
}
HWY_INLINE FloatVec MulAddPairs(PairVec a, PairVec b, FloatVec c) {
  return FloatVec{_mm512_dpbf16_ps(c.raw, (__m512bh)a.raw, (__m512bh)b.raw)};
}

struct PairRows {
  const Pair* base;
  size_t stride;
};

template <size_t kRows, size_t kVectors>
HWY_INLINE void AddPairs(PairRows a, const Columns<kVectors, Pair>& b, size_t depth,
                         Accumulators<kRows, kVectors>& c) {
  const auto factor = [&a](size_t r, size_t i) {
    return hn::Set(PairTag(), a.base[r * a.stride + i].bits);
  };
  for (size_t i = 0; i < depth; ++i) {
    if constexpr (kVectors <= kRows) {
      PairVec columns[kVectors];
#pragma GCC unroll 16
      for (size_t v = 0; v < kVectors; ++v) columns[v] = LoadPairs(b.at[v] + i * b.row_stride);
#pragma GCC unroll 16
      for (size_t r = 0; r < kRows; ++r) {
        const PairVec row = factor(r, i);
#pragma GCC unroll 16
        for (size_t v = 0; v < kVectors; ++v) {
          c.at[r][v] = MulAddPairs(row, columns[v], c.at[r][v]);
        }
      }
    } else {
      PairVec rows[kRows];
#pragma GCC unroll 16
      for (size_t r = 0; r < kRows; ++r) rows[r] = factor(r, i);
#pragma GCC unroll 16
      for (size_t v = 0; v < kVectors; ++v) {
        const PairVec column = LoadPairs(b.at[v] + i * b.row_stride);
#pragma GCC unroll 16
        for (size_t r = 0; r < kRows; ++r) {
          c.at[r][v] = MulAddPairs(rows[r], column, c.at[r][v]);
        }
      }
    }
  }
}

// scores[r, t] = offset[r] + q[r] . k[t]; k is [blocks][head_dim / 2][16] pairs of channels.
struct PairKeyTile {
  const Pair* k;
  size_t blocks, head_dim;
};
template <size_t kRows>
HWY_INLINE void ScorePairs(PairRows q, PairKeyTile tile, const float* offset, float* scores,
                           size_t stride) {
  const auto step = [&]<size_t kVectors>(size_t block) {
    Columns<kVectors, Pair> columns;
    columns.row_stride = kKeyBlockTokens;
#pragma GCC unroll 16
    for (size_t v = 0; v < kVectors; ++v) {
      columns.at[v] = tile.k + (block + v) * (tile.head_dim / 2) * kKeyBlockTokens;
    }
    Accumulators<kRows, kVectors> c;
#pragma GCC unroll 16
    for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (size_t v = 0; v < kVectors; ++v) c.at[r][v] = hn::Set(FloatTag(), offset[r]);
    }
    AddPairs(q, columns, tile.head_dim / 2, c);
    c.Store(scores + block * kFloatLanes, stride);
  };
  ForEachStep<StepVectors(kRows)>(0, tile.blocks, step);
}

// o[r] = rescale[r] o[r] + sum_t weights[r, t] v[t]; v is [tokens / 2][head_dim] pairs of tokens.
struct PairValueTile {
  const Pair* v;
  size_t tokens, head_dim;
};
template <size_t kRows>
HWY_INLINE void AddPairValues(PairRows weights, PairValueTile tile, const float* rescale,
                              float* o) {
  const auto step = [&]<size_t kVectors>(size_t first) {
    Columns<kVectors, Pair> columns;
    columns.row_stride = tile.head_dim;
#pragma GCC unroll 16
    for (size_t v = 0; v < kVectors; ++v) columns.at[v] = tile.v + (first + v) * kFloatLanes;
    Accumulators<kRows, kVectors> c;
    c.LoadScaled(o + first * kFloatLanes, tile.head_dim, rescale);
    AddPairs(weights, columns, tile.tokens / 2, c);
    c.Store(o + first * kFloatLanes, tile.head_dim);
  };
  ForEachStep<StepVectors(kRows)>(0, tile.head_dim / kFloatLanes, step);
}

}  // namespace
}  // namespace qevict

#endif
