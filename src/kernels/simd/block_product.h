// The product that both halves of attention are made of, at register level:
//   c[r, j] += sum_i a[r, i] b[i, j],   r < kRows,  j < kVectors * kFloatLanes
// For scores a is q and b a block of K (channel by token); for values a is p and b a strip of V
// (token by channel). b is f16, f32, int8, or pairs of bf16 (simd/pair_product.h); each of its
// vectors is loaded and converted once for all rows.
#pragma once

#include "kernels/simd/level.h"

namespace qevict {
namespace {

// Vector v of row i of b is at at[v] + i * row_stride.
template <size_t kVectors, typename Element>
struct Columns {
  const Element* at[kVectors];
  size_t row_stride;
};

// What stands beside an element of b in a, the vectors of both, and what their product is.
template <typename Element>
struct Operand {
  using Value = float;
  using Vec = FloatVec;
  static HWY_INLINE Vec Load(const Element* from) { return LoadFloats(from); }
  static HWY_INLINE Vec Set(Value value) { return hn::Set(FloatTag(), value); }
  static HWY_INLINE FloatVec MulAdd(Vec a, Vec b, FloatVec c) { return hn::MulAdd(a, b, c); }
};

// Row r of a at base + r * stride; for int8 values, of group g of channels at + g * group_stride.
template <typename Value>
struct RowsOf {
  const Value* base;
  size_t stride;
  size_t group_stride = 0;
};
using Rows = RowsOf<float>;
template <typename Element>
using RowsBeside = RowsOf<typename Operand<Element>::Value>;

// Asks for memory that a later product will read, at the pace at which this one reads its own.
struct Prefetch {
  const char* next = nullptr;
  size_t bytes_per_byte = 0;  // 1, or 0 to ask for nothing new

  // What lies `elements` behind `from`; with 0 elements the same line again, which costs nothing.
  template <typename Element>
  static Prefetch Ahead(const Element* from, size_t elements) {
    return {reinterpret_cast<const char*>(from + elements), elements == 0 ? size_t{0} : size_t{1}};
  }

  template <size_t kBytes>
  HWY_INLINE void Advance() {
#pragma GCC unroll 8
    for (size_t line = 0; line < kBytes; line += kCacheLineBytes) PrefetchLine(next + line);
    next += kBytes * bytes_per_byte;
  }
};

template <size_t kRows, size_t kVectors>
struct Accumulators {
  FloatVec at[kRows][kVectors];

  HWY_INLINE void Clear() {
#pragma GCC unroll 16
    for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (size_t v = 0; v < kVectors; ++v) at[r][v] = hn::Zero(FloatTag());
    }
  }
  HWY_INLINE void Fill(const float* row_value) {
#pragma GCC unroll 16
    for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (size_t v = 0; v < kVectors; ++v) at[r][v] = hn::Set(FloatTag(), row_value[r]);
    }
  }
  HWY_INLINE void LoadScaled(const float* from, size_t stride, const float* row_scale) {
#pragma GCC unroll 16
    for (size_t r = 0; r < kRows; ++r) {
      const FloatVec scale = hn::Set(FloatTag(), row_scale[r]);
#pragma GCC unroll 16
      for (size_t v = 0; v < kVectors; ++v) {
        at[r][v] = hn::Mul(LoadFloats(from + r * stride + v * kFloatLanes), scale);
      }
    }
  }
  // Row r becomes, or grows by, its sums times the columns' scales.
  HWY_INLINE void StoreScaled(const FloatVec (&scale)[kVectors], float* to, size_t stride) const {
#pragma GCC unroll 16
    for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (size_t v = 0; v < kVectors; ++v) {
        StoreFloats(hn::Mul(at[r][v], scale[v]), to + r * stride + v * kFloatLanes);
      }
    }
  }
  HWY_INLINE void AddScaled(const FloatVec (&scale)[kVectors], float* to, size_t stride) const {
#pragma GCC unroll 16
    for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (size_t v = 0; v < kVectors; ++v) {
        float* sum = to + r * stride + v * kFloatLanes;
        StoreFloats(hn::MulAdd(at[r][v], scale[v], LoadFloats(sum)), sum);
      }
    }
  }
  HWY_INLINE void Store(float* to, size_t stride) const {
#pragma GCC unroll 16
    for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (size_t v = 0; v < kVectors; ++v) {
        StoreFloats(at[r][v], to + r * stride + v * kFloatLanes);
      }
    }
  }
};

// Vectors of b per step for a number of rows: enough independent FMA chains to hide their latency
// (8 on today's cores), few enough for the registers with the shorter of a row and a column of the
// tile beside the accumulators. Steps of two AVX-512 vectors are to be avoided: on Zen 4 they reach
// 63 % of the FMA peak in AttendPrefill where four reach 84 to 90 %.
constexpr size_t StepVectors(size_t rows) {
  constexpr size_t kAvx2[] = {8, 4, 4, 3, 2, 2};       // 16 registers
  constexpr size_t kAvx512[] = {8, 4, 4, 4, 4, 4, 4};  // 32
  constexpr size_t kNeon[] = {8, 8, 8, 4, 4, 4};       // 32
  return kBlockVectors == 1   ? kAvx512[rows - 1]
         : kBlockVectors == 2 ? kAvx2[rows - 1]
                              : kNeon[rows - 1];
}
inline constexpr size_t kMaxStepRows = kBlockVectors == 1 ? 7 : 6;

// Calls body.template operator()<n>(first) for runs of n <= kStep vectors that make up [0,
// vectors).
template <size_t kStep, typename Body>
HWY_INLINE void ForEachStep(size_t first, size_t vectors, Body body) {
  // With an odd step two halves are better than one whole and a rest of a single vector.
  constexpr size_t kAvoided = kStep % 2 == 1 && kStep > 1 ? kStep + 1 : 0;
  for (; vectors >= kStep && vectors != kAvoided; first += kStep, vectors -= kStep) {
    body.template operator()<kStep>(first);
  }
  if constexpr (kStep > 1) ForEachStep<(kStep + 1) / 2>(first, vectors, body);
}

// kSame neighbouring vectors of b have the same a, the next ones that of the next group.
template <size_t kRows, size_t kVectors, typename Element, size_t kSame = kVectors>
HWY_INLINE void AddProduct(RowsBeside<Element> a, const Columns<kVectors, Element>& b, size_t depth,
                           Prefetch& prefetch, Accumulators<kRows, kVectors>& c) {
  static_assert(kVectors % kSame == 0);
  using Op = Operand<Element>;
  // The shorter side stays in registers while the longer passes by, one vector at a time.
  for (size_t i = 0; i < depth; ++i) {
    if constexpr (sizeof(Element) < sizeof(float))
      prefetch.Advance<kVectors * kFloatLanes * sizeof(Element)>();
    if constexpr (kVectors <= kRows) {
      typename Op::Vec columns[kVectors];
#pragma GCC unroll 16
      for (size_t v = 0; v < kVectors; ++v) columns[v] = Op::Load(b.at[v] + i * b.row_stride);
#pragma GCC unroll 16
      for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
        for (size_t g = 0; g < kVectors / kSame; ++g) {
          const auto factor = Op::Set(a.base[g * a.group_stride + r * a.stride + i]);
#pragma GCC unroll 16
          for (size_t v = g * kSame; v < (g + 1) * kSame; ++v) {
            c.at[r][v] = Op::MulAdd(factor, columns[v], c.at[r][v]);
          }
        }
      }
    } else {
#pragma GCC unroll 16
      for (size_t g = 0; g < kVectors / kSame; ++g) {
        typename Op::Vec factors[kRows];
#pragma GCC unroll 16
        for (size_t r = 0; r < kRows; ++r) {
          factors[r] = Op::Set(a.base[g * a.group_stride + r * a.stride + i]);
        }
#pragma GCC unroll 16
        for (size_t v = g * kSame; v < (g + 1) * kSame; ++v) {
          const auto column = Op::Load(b.at[v] + i * b.row_stride);
#pragma GCC unroll 16
          for (size_t r = 0; r < kRows; ++r) {
            c.at[r][v] = Op::MulAdd(factors[r], column, c.at[r][v]);
          }
        }
      }
    }
  }
}

// Calls fn<rows>(): a number of rows, 1 .. kMaxStepRows, as a constant of its own code.
template <typename Fn>
HWY_INLINE void WithRows(size_t rows, const Fn& fn) {
  static_assert(kMaxStepRows <= 7);
  switch (rows) {
    case 1:
      return fn.template operator()<1>();
    case 2:
      return fn.template operator()<2>();
    case 3:
      return fn.template operator()<3>();
    case 4:
      return fn.template operator()<4>();
    case 5:
      return fn.template operator()<5>();
    case 6:
      return fn.template operator()<6>();
#if HWY_MAX_BYTES == 64
    case 7:
      return fn.template operator()<7>();
#endif
  }
}

// scores[r, t] = q[r] . k[t] of all tokens of `blocks` K blocks, plus offset[r] unless that is
// null; k is [blocks][depth][16], depth the channels, or pairs of them.
template <typename Element>
struct KeyTile {
  const Element* k;
  size_t blocks, depth;
  Prefetch prefetch;
};
template <size_t kRows, typename Element>
HWY_INLINE void ScoreTile(RowsBeside<Element> q, KeyTile<Element> tile, float* scores,
                          size_t stride, const float* offset = nullptr) {
  const auto step = [&]<size_t kVectors>(size_t first) {
    Columns<kVectors, Element> columns;
    columns.row_stride = kKeyBlockTokens;
#pragma GCC unroll 16
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t block = (first + v) / kBlockVectors, vector = (first + v) % kBlockVectors;
      columns.at[v] = tile.k + block * tile.depth * kKeyBlockTokens + vector * kFloatLanes;
    }
    Accumulators<kRows, kVectors> c;
    if (offset == nullptr) {
      c.Clear();
    } else {
      c.Fill(offset);
    }
    AddProduct(q, columns, tile.depth, tile.prefetch, c);
    c.Store(scores + first * kFloatLanes, stride);
  };
  ForEachStep<StepVectors(kRows)>(0, tile.blocks * kBlockVectors, step);
}

// The same of int8 keys: the sum of every group of channels times the tokens' scales of that group.
inline constexpr size_t kQ8TileBlocks = 4;  // at most
struct Q8KeyTile {
  const int8_t* k;
  const F16* scales;  // [blocks][groups][16]
  size_t blocks, head_dim;
  Prefetch prefetch;
};
template <size_t kRows>
HWY_INLINE void ScoreTile(Rows q, Q8KeyTile tile, float* scores, size_t stride) {
  const size_t groups = Q8Groups(tile.head_dim);
  const auto step = [&]<size_t kVectors>(size_t first) {
    for (size_t g = 0; g < groups; ++g) {
      const size_t channel = g * kQ8GroupChannels, left = tile.head_dim - channel;
      Columns<kVectors, int8_t> columns;
      columns.row_stride = kKeyBlockTokens;
      FloatVec scale[kVectors];
#pragma GCC unroll 16
      for (size_t v = 0; v < kVectors; ++v) {
        const size_t block = (first + v) / kBlockVectors, vector = (first + v) % kBlockVectors;
        columns.at[v] =
            tile.k + (block * tile.head_dim + channel) * kKeyBlockTokens + vector * kFloatLanes;
      }
      Accumulators<kRows, kVectors> c;
      c.Clear();
      AddProduct(Rows{q.base + channel, q.stride}, columns,
                 left < kQ8GroupChannels ? left : kQ8GroupChannels, tile.prefetch, c);
#pragma GCC unroll 16
      for (size_t v = 0; v < kVectors; ++v) {
        const size_t block = (first + v) / kBlockVectors, vector = (first + v) % kBlockVectors;
        scale[v] =
            LoadFloats(tile.scales + (block * groups + g) * kKeyBlockTokens + vector * kFloatLanes);
      }
      float* to = scores + first * kFloatLanes;
      if (g == 0) {
        c.StoreScaled(scale, to, stride);
      } else {
        c.AddScaled(scale, to, stride);
      }
    }
  };
  // No step is longer than a tile.
  constexpr size_t kMost = kQ8TileBlocks * kBlockVectors;
  constexpr size_t kStep = StepVectors(kRows) < kMost ? StepVectors(kRows) : kMost;
  ForEachStep<kStep>(0, tile.blocks * kBlockVectors, step);
}

// o[r] = rescale[r] o[r] + sum_t weights[r, t] v[t]; v is [depth][head_dim], depth the tokens, or
// pairs of them; rows of o are head_dim apart.
template <typename Element>
struct ValueTile {
  const Element* v;
  size_t depth, head_dim;
  Prefetch prefetch;
};
template <size_t kRows, typename Element>
HWY_INLINE void AddValues(RowsBeside<Element> weights, ValueTile<Element> tile,
                          const float* rescale, float* o) {
  const auto step = [&]<size_t kVectors>(size_t first) {
    Columns<kVectors, Element> columns;
    columns.row_stride = tile.head_dim;
#pragma GCC unroll 16
    for (size_t v = 0; v < kVectors; ++v) columns.at[v] = tile.v + (first + v) * kFloatLanes;
    Accumulators<kRows, kVectors> c;
    c.LoadScaled(o + first * kFloatLanes, tile.head_dim, rescale);
    AddProduct(weights, columns, tile.depth, tile.prefetch, c);
    c.Store(o + first * kFloatLanes, tile.head_dim);
  };
  ForEachStep<StepVectors(kRows)>(0, tile.head_dim / kFloatLanes, step);
}

// The same of int8 values, whose weights carry the scale of their group: row r of group g of
// `weights` is weights.base + g * weights.group_stride + r * weights.stride.
struct Q8ValueTile {
  const int8_t* v;
  size_t tokens, head_dim;
  Prefetch prefetch;
};
template <size_t kRows>
HWY_INLINE void AddValues(Rows weights, Q8ValueTile tile, const float* rescale, float* o) {
  constexpr size_t kGroupVectors = kQ8GroupChannels / kFloatLanes;
  const auto step = [&]<size_t kVectors>(size_t first) {
    Columns<kVectors, int8_t> columns;
    columns.row_stride = tile.head_dim;
#pragma GCC unroll 16
    for (size_t v = 0; v < kVectors; ++v) columns.at[v] = tile.v + (first + v) * kFloatLanes;
    Accumulators<kRows, kVectors> c;
    c.LoadScaled(o + first * kFloatLanes, tile.head_dim, rescale);
    const size_t group = first / kGroupVectors;
    constexpr size_t kSame = kVectors < kGroupVectors ? kVectors : kGroupVectors;
    AddProduct<kRows, kVectors, int8_t, kSame>(
        {weights.base + group * weights.group_stride, weights.stride, weights.group_stride},
        columns, tile.tokens, tile.prefetch, c);
    c.Store(o + first * kFloatLanes, tile.head_dim);
  };
  // Powers of two, so that no step begins inside of a group and goes beyond it.
  constexpr size_t kMost = StepVectors(kRows);
  constexpr size_t kStep = kMost >= 8 ? 8 : kMost >= 4 ? 4 : kMost >= 2 ? 2 : 1;
  ForEachStep<kStep>(0, tile.head_dim / kFloatLanes, step);
}

}  // namespace
}  // namespace qevict
