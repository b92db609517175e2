// The product that both halves of attention over codes are made of, at register level:
//   sums[r, lane of v] += sum over lines and the bytes of a lane of level(code) * factor[r]
// For scores a vector's lanes are tokens, its lines channels and the factors q; for values lanes
// are channels, lines groups of tokens and the factors weights. A line is unpacked once for all
// rows.
#pragma once

#include "kernels/simd/block_product.h"
#include "kernels/simd/unpack_codes.h"

namespace qevict {
namespace {

// What lies in the next page, in an allocation of its own: not a pointer that may be computed.
HWY_INLINE void PrefetchAhead(const uint8_t* line, size_t ahead) {
  PrefetchLine(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(line) + ahead));
}

// Line n of vector v is at at[v] + n * stride, its third bits at third[v] + n / 2 * kCodeLineBytes.
// `ahead` bytes behind each line lies one that a later product will read; 0 asks for nothing.
template <size_t kVectors>
struct CodeLines {
  const uint8_t* at[kVectors];
  const uint8_t* third[kVectors];
  size_t stride, ahead;
};

struct Factors {
  const uint8_t* base;  // bytes, signed for keys
  size_t stride;
};

template <size_t kRows, size_t kVectors>
struct Sums {
  SumVec at[kRows][kVectors];

  HWY_INLINE void Start(const int32_t* row_sum) {
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (size_t v = 0; v < kVectors; ++v) at[r][v] = hn::Set(SumTag(), row_sum[r]);
    }
  }
};

template <Half kHalf, uint32_t kBits, size_t kRows, size_t kVectors>
struct CodeProduct {
  using Unpacker = CodeUnpacker<kHalf, kBits>;
  using Parity = typename Unpacker::Parity;
  static constexpr size_t kLineFactors = 4 * Unpacker::kCount;  // bytes

  template <Parity kParity>
  static HWY_INLINE void AddLine(const Unpacker& unpacker, const CodeLines<kVectors>& lines,
                                 size_t n, Factors factors, Sums<kRows, kVectors>& sums) {
    const uint8_t* row = factors.base + n * kLineFactors;
    typename Unpacker::Line line[kVectors];
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) {
      const uint8_t* at = lines.at[v] + n * lines.stride;
      const uint8_t* third = lines.third[v] + n / 2 * kCodeLineBytes;
      if (v % kBlockVectors == 0) {
        PrefetchAhead(at, lines.ahead);
        if (kBits == 3 && kParity == Parity::kEven) PrefetchAhead(third, lines.ahead);
      }
      line[v] = unpacker.template Load<kParity>(at, third);
    }
#if HWY_MAX_BYTES == 32
    static_assert(int(Unpacker::kCount) <= MaxPairSums<kHalf>(kBits == 1   ? 1
                                                              : kBits == 2 ? 10
                                                              : kBits == 3 ? 8
                                                                           : 20));
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) {
      ByteVec codes[Unpacker::kCount];
      ForEachConstant<Unpacker::kCount>([&]<size_t i>() QEVICT_INLINE_LAMBDA {
        codes[i] = unpacker.template Unpack<i>(line[v]);
      });
#pragma GCC unroll 8
      for (size_t r = 0; r < kRows; ++r) {
        PairVec pairs = PairSum<kHalf>(codes[0], BroadcastFour(row + r * factors.stride));
#pragma GCC unroll 8
        for (size_t i = 1; i < Unpacker::kCount; ++i) {
          pairs = hn::Add(
              pairs, PairSum<kHalf>(codes[i], BroadcastFour(row + r * factors.stride + 4 * i)));
        }
        sums.at[r][v] = hn::Add(sums.at[r][v], Widen(pairs));
      }
    }
#else
    ForEachConstant<Unpacker::kCount>([&]<size_t i>() QEVICT_INLINE_LAMBDA {
      ByteVec codes[kVectors];
#pragma GCC unroll 8
      for (size_t v = 0; v < kVectors; ++v) codes[v] = unpacker.template Unpack<i>(line[v]);
#pragma GCC unroll 8
      for (size_t r = 0; r < kRows; ++r) {
        const ByteVec factor = BroadcastFour(row + r * factors.stride + 4 * i);
#pragma GCC unroll 8
        for (size_t v = 0; v < kVectors; ++v) {
          sums.at[r][v] = DotBytes<kHalf>(sums.at[r][v], codes[v], factor);
        }
      }
    });
#endif
  }

  static HWY_INLINE void Add(const Unpacker& unpacker, const CodeLines<kVectors>& lines,
                             size_t depth, Factors factors, Sums<kRows, kVectors>& sums) {
    size_t n = 0;
    if constexpr (kBits == 3) {
      for (; n + 2 <= depth; n += 2) {
        AddLine<Parity::kEven>(unpacker, lines, n, factors, sums);
        AddLine<Parity::kOdd>(unpacker, lines, n + 1, factors, sums);
      }
    }
    for (; n < depth; ++n) AddLine<Parity::kEven>(unpacker, lines, n, factors, sums);
  }
};

// Vectors per step for a number of rows: enough independent sums to hide a product's latency, and
// all of them in registers.
template <Half kHalf>
constexpr size_t CodeStepVectors(size_t rows) {
  constexpr size_t kAvx512Keys[] = {4, 4, 4, 4, 2, 2, 2, 2};
  constexpr size_t kAvx512Values[] = {4, 4, 4, 4, 2, 2, 2, 2};
  constexpr size_t kAvx2[] = {2, 2, 1, 1, 1, 1, 1, 1};
  constexpr size_t kNeon[] = {4, 4, 4, 4, 2, 2, 2, 2};
  if (kBlockVectors == 2) return kAvx2[rows - 1];
  if (kBlockVectors == 4) return kNeon[rows - 1];
  return kHalf == Half::kKeys ? kAvx512Keys[rows - 1] : kAvx512Values[rows - 1];
}

inline constexpr size_t kMaxCodeRows = 8;
// Calls fn<rows>(): a number of rows, 1 .. kMaxCodeRows, as a constant of its own code.
template <typename Fn>
HWY_INLINE void WithCodeRows(size_t rows, const Fn& fn) {
  ForEachConstant<kMaxCodeRows>([&]<size_t i>() QEVICT_INLINE_LAMBDA {
    if (rows == i + 1) fn.template operator()<i + 1>();
  });
}

}  // namespace
}  // namespace qevict
