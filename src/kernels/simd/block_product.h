// The product that both halves of attention are made of, at register level:
//   c[r, j] += sum_i a[r, i] b[i, j],   r < kRows,  j < 16 kBlocks
// For scores a is q, b a block of K (channel by token); for values a is p, b a strip of V (token by
// channel). b is f16 or f32; each of its vectors is loaded and converted once for all rows.
#pragma once

#include "kernels/simd/level.h"

namespace qevict {
namespace {

// b[i, 16 * block + lane] is at base + i * row_stride + block * block_stride + lane.
template <typename Element>
struct Columns {
  const Element* base;
  size_t row_stride, block_stride;
};

struct Rows {
  const float* base;
  size_t stride;
};

template <size_t kRows, size_t kBlocks>
struct Accumulators {
  static constexpr size_t kVectors = kBlocks * kBlockVectors;
  FloatVec at[kRows][kVectors];

  HWY_INLINE void Clear() {
#pragma GCC unroll 16
    for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (size_t v = 0; v < kVectors; ++v) at[r][v] = hn::Zero(FloatTag());
    }
  }
  // c[r, 16 * block + lane] is at to + r * stride + 16 * block + lane.
  HWY_INLINE void Load(const float* from, size_t stride, const float* row_scale) {
#pragma GCC unroll 16
    for (size_t r = 0; r < kRows; ++r) {
      const FloatVec scale = hn::Set(FloatTag(), row_scale[r]);
#pragma GCC unroll 16
      for (size_t v = 0; v < kVectors; ++v) {
        at[r][v] = hn::Mul(LoadFloats(from + r * stride + v * kFloatLanes), scale);
      }
    }
  }
  HWY_INLINE void Store(float* to, size_t stride) const {
#pragma GCC unroll 16
    for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (size_t v = 0; v < kVectors; ++v)
        StoreFloats(at[r][v], to + r * stride + v * kFloatLanes);
    }
  }
};

template <size_t kRows, size_t kBlocks, typename Element>
HWY_INLINE void AddProduct(Rows a, Columns<Element> b, size_t depth,
                           Accumulators<kRows, kBlocks>& c) {
  for (size_t i = 0; i < depth; ++i) {
    FloatVec columns[kBlocks * kBlockVectors];
#pragma GCC unroll 16
    for (size_t block = 0; block < kBlocks; ++block) {
#pragma GCC unroll 16
      for (size_t v = 0; v < kBlockVectors; ++v) {
        columns[block * kBlockVectors + v] =
            LoadFloats(b.base + i * b.row_stride + block * b.block_stride + v * kFloatLanes);
      }
    }
#pragma GCC unroll 16
    for (size_t r = 0; r < kRows; ++r) {
      const FloatVec factor = hn::Set(FloatTag(), a.base[r * a.stride + i]);
#pragma GCC unroll 16
      for (size_t v = 0; v < kBlocks * kBlockVectors; ++v) {
        c.at[r][v] = hn::MulAdd(factor, columns[v], c.at[r][v]);
      }
    }
  }
}

}  // namespace
}  // namespace qevict
