// Code lines (kernels/code_layout.h) to vectors of level bytes, one table look-up a vector.
//
// AVX-512's vpermb looks up six bits and ignores the other two, so a table that repeats the levels
// finds a code at any place within those six bits: most vectors need neither shift nor mask. The
// other levels look up four bits (vpshufb, tbl) the same way, a nibble at a time; codes of three
// bits are taken out by shift and mask.
#pragma once

#include "kernels/code_layout.h"
#include "kernels/simd/dot_bytes.h"

namespace qevict {
namespace {

// What the byte product of this half takes for codes 0 .. 15, in every 16 bytes.
template <Half kHalf>
HWY_INLINE ByteVec LevelTable(const CodeLevels& levels) {
  const ByteVec table = hn::LoadDup128(ByteTag(), reinterpret_cast<const uint8_t*>(levels.table));
  return kUnsignedCodes<kHalf> ? hn::Add(table, hn::Set(ByteTag(), uint8_t(levels.offset))) : table;
}

// kCount vectors of one line, vector i with the codes i of its bytes. Three-bit codes come from two
// lines: `third` holds the third bits of an even line and the odd one after it.
template <Half kHalf, uint32_t kBits>
class CodeUnpacker {
 public:
  static constexpr size_t kCount = kBits == 3 ? 4 : 8 / kBits;
  enum class Parity { kEven, kOdd };

#if HWY_MAX_BYTES == 64
  HWY_INLINE explicit CodeUnpacker(const CodeLevels& levels) {
    const ByteVec table = LevelTable<kHalf>(levels);
    ForEachConstant<kTables>([&]<size_t i>() QEVICT_INLINE_LAMBDA {
      HWY_ALIGN static constexpr Pattern kPattern = PatternOf(i);
      tables_[i] = Permute(table, hn::Load(ByteTag(), kPattern.bytes));
    });
  }
  struct Line {
    ByteVec packed[2];
  };
  template <Parity kParity>
  HWY_INLINE Line Load(const uint8_t* line, const uint8_t* third) const {
    const ByteVec low = hn::Load(ByteTag(), line);
    if constexpr (kBits != 3) return {{low, ShiftLineRight<2>(low)}};
    // Two codes a byte: their low bits at 0 .. 3, their third bits at 4 and 5.
    const ByteVec high =
        ShiftLineLeft<(kParity == Parity::kEven ? 4 : 0)>(hn::Load(ByteTag(), third));
    return {{Merge(low, high), Merge(ShiftLineRight<4>(low), ShiftLineRight<2>(high))}};
  }
  template <size_t i>
  HWY_INLINE ByteVec Unpack(const Line& line) const {
    if constexpr (kBits == 3) return Permute(tables_[i % 2], line.packed[i / 2]);
    constexpr bool kShifted = (i + 1) * kBits > 6;
    return Permute(tables_[kShifted && kBits < 4 ? i - 2 / kBits : i],
                   line.packed[kShifted ? 1 : 0]);
  }

 private:
  static constexpr size_t kTables = kBits == 1 ? 6 : kBits == 2 ? 3 : 2;
  struct Pattern {
    uint8_t bytes[64];
  };
  static constexpr Pattern PatternOf(size_t i) {
    Pattern pattern{};
    for (size_t index = 0; index < 64; ++index) {
      if (kBits == 3) {
        pattern.bytes[index] = uint8_t((index >> (2 * i) & 3) | (index >> (4 + i) & 1) << 2);
      } else {
        const size_t shift = kBits == 4 && i == 1 ? 2 : i * kBits;
        pattern.bytes[index] = uint8_t(index >> shift & ((1u << kBits) - 1));
      }
    }
    return pattern;
  }
  static HWY_INLINE ByteVec Permute(ByteVec table, ByteVec index) {
    return ByteVec{_mm512_permutexvar_epi8(index.raw, table.raw)};
  }
  static HWY_INLINE ByteVec Merge(ByteVec low, ByteVec high) {
    constexpr int kSelect = 0xca;  // bit of the mask ? first : second
    return ByteVec{_mm512_ternarylogic_epi32(_mm512_set1_epi8(0x0f), low.raw, high.raw, kSelect)};
  }
  ByteVec tables_[kTables];
#else
  HWY_INLINE explicit CodeUnpacker(const CodeLevels& levels) {
    const ByteVec table = LevelTable<kHalf>(levels);
    ForEachConstant<kTables>([&]<size_t i>() QEVICT_INLINE_LAMBDA {
      HWY_ALIGN static constexpr Pattern kPattern = PatternOf(i);
      tables_[i] = hn::TableLookupBytes(table, hn::LoadDup128(ByteTag(), kPattern.bytes));
    });
  }
  // Nibbles, each of one or several codes; or the two lines of three-bit codes.
  struct Line {
    ByteVec low, high;
  };
  template <Parity kParity>
  HWY_INLINE Line Load(const uint8_t* line, const uint8_t* third) const {
    const ByteVec low = hn::Load(ByteTag(), line);
    if constexpr (kBits == 3) {
      return {low, ShiftLineRight<(kParity == Parity::kEven ? 0 : 4)>(hn::Load(ByteTag(), third))};
    }
    const ByteVec nibble = hn::Set(ByteTag(), uint8_t{15});
    return {hn::And(low, nibble), hn::And(ShiftLineRight<4>(low), nibble)};
  }
  template <size_t i>
  HWY_INLINE ByteVec Unpack(const Line& line) const {
    if constexpr (kBits != 3) {
      return hn::TableLookupBytes(tables_[i % kTables], i < kTables ? line.low : line.high);
    }
    const ByteVec low = hn::And(ShiftLineRight<2 * i>(line.low), hn::Set(ByteTag(), uint8_t{3}));
    const ByteVec third =
        ShiftLineLeft<(i < 2 ? 2 - i : 0)>(ShiftLineRight<(i > 2 ? i - 2 : 0)>(line.high));
    return hn::TableLookupBytes(tables_[0],
                                hn::Or(low, hn::And(third, hn::Set(ByteTag(), uint8_t{4}))));
  }

 private:
  static constexpr size_t kTables = kBits == 3 ? 1 : 4 / kBits;  // places in a nibble
  struct Pattern {
    uint8_t bytes[16];
  };
  static constexpr Pattern PatternOf(size_t i) {
    Pattern pattern{};
    for (size_t index = 0; index < 16; ++index) {
      pattern.bytes[index] = uint8_t(index >> (i * kBits) & ((1u << kBits) - 1));
    }
    return pattern;
  }
  ByteVec tables_[kTables];
#endif
};

}  // namespace
}  // namespace qevict
