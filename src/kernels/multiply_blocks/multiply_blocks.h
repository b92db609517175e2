// Products of rows of activations with weights in blocks of 4 to 8 bits, as model files store them,
// from a layout in which neighbouring outputs lie in neighbouring lanes:
//   y[r, o] = bias[o] + sum over inputs i of weight(o, i) x8(r, i)
//   weight(o, i) = scale(o, i) level(o, i) + minimum(o, i)
// With minimums a level is the code, 0 .. 2^bits - 1, else code - 2^(bits - 1). The activations are
// rounded to int8 once per group of 32 inputs, as ggml does:
//   x8 = s code    s = largest |x| of the group / 127    code = x / s to the nearest, ties to even
// A group that holds a NaN or an infinity makes every output of its row NaN; one with nothing above
// 2^-100 counts as zeros.
//
// Weights lie in tiles of 16 outputs and are read as one stream: that is what memory is fastest
// with. A tile holds its groups one behind the other; in front of the 8 of a super group lie the
// factors of their scales and then of their minimums, [16 outputs] f16 each. A group holds
//   codes     4 to 6 bits: [4][16 outputs][4] bytes: byte b of vector j has the low four bits of
//             inputs 4j + b (low nibble) and 16 + 4j + b (high nibble)
//             8 bits: [8][16 outputs][4] bytes: byte b of vector v is input 4v + b
//   tops      5 bits: [16 outputs][4] bytes: bit v of byte b is bit 4 of input 4v + b
//             6 bits: [2][16 outputs][4] bytes: bits 2f, 2f + 1 of byte b of vector h are bits 4
//             and 5 of input 4 (4h + f) + b
//   scales    as Scales says
//   minimums  likewise, where the format has them
// A tile is padded to 64 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/f16.h"
#include "kernels/kernel_variant.h"

namespace qevict {

inline constexpr size_t kWeightGroup = 32;   // inputs
inline constexpr size_t kWeightSuper = 256;  // inputs
inline constexpr size_t kTileOutputs = 16;
inline constexpr size_t kMultiplyMostRows = 32;  // of one call: they stay in L1 or L2

enum class Scales : uint8_t {
  kGroup,       // [16 outputs] f16
  kSuperGroup,  // [16 outputs] uint8, times the super group's factor
  kSuperHalf,   // [2][16 outputs] int8, for 16 inputs each, times the factor
};

struct WeightFormat {
  uint32_t bits = 4;  // 4, 5, 6 or 8
  Scales scales = Scales::kGroup;
  bool minimums = false;  // not with kSuperHalf
  friend bool operator==(const WeightFormat&, const WeightFormat&) = default;
};

// Every format that the kernel has; names are ggml's.
inline constexpr WeightFormat kQ41{4, Scales::kGroup, true};
inline constexpr WeightFormat kQ50{5, Scales::kGroup, false};
inline constexpr WeightFormat kQ51{5, Scales::kGroup, true};
inline constexpr WeightFormat kQ80{8, Scales::kGroup, false};
inline constexpr WeightFormat kQ4K{4, Scales::kSuperGroup, true};
inline constexpr WeightFormat kQ5K{5, Scales::kSuperGroup, true};
inline constexpr WeightFormat kQ6K{6, Scales::kSuperHalf, false};
inline constexpr WeightFormat kWeightFormats[] = {kQ41, kQ50, kQ51, kQ80, kQ4K, kQ5K, kQ6K};

struct TileLayout {
  // In bytes from a group's first; codes come first.
  size_t tops = 0, scales = 0, minimums = 0, group_bytes = 0;
  // Of a super group: its groups, or 1, and the bytes of the factors in front of them and of all.
  size_t groups = 0, factor_bytes = 0, super_bytes = 0;

  // A group's first byte, and that of its super group, from the tile's.
  constexpr size_t Group(size_t g) const {
    return g / groups * super_bytes + factor_bytes + g % groups * group_bytes;
  }
  constexpr size_t Super(size_t g) const { return g / groups * super_bytes; }
};
inline constexpr size_t kFactorBytes = kTileOutputs * sizeof(F16);  // of the scales of a tile

constexpr TileLayout LayOutTile(WeightFormat format) {
  const bool super = format.scales != Scales::kGroup;
  const size_t scales = kTileOutputs * (format.scales == Scales::kSuperGroup ? 1 : 2);
  const size_t top_bits = format.bits == 8 ? 0 : format.bits - 4;
  TileLayout layout;
  layout.tops = kTileOutputs * kWeightGroup / (format.bits == 8 ? 1 : 2);
  layout.scales = layout.tops + kTileOutputs * kWeightGroup / 8 * top_bits;
  layout.minimums = layout.scales + scales;
  layout.group_bytes = layout.minimums + (format.minimums ? scales : 0);
  layout.groups = super ? kWeightSuper / kWeightGroup : 1;
  layout.factor_bytes = !super ? 0 : kFactorBytes * (format.minimums ? 2 : 1);
  layout.super_bytes = layout.factor_bytes + layout.groups * layout.group_bytes;
  return layout;
}
// inputs: a multiple of 32, with super groups of 256.
constexpr size_t TileBytes(WeightFormat format, size_t inputs) {
  const TileLayout layout = LayOutTile(format);
  return (inputs / kWeightGroup / layout.groups * layout.super_bytes + 63) / 64 * 64;
}

// Room for int8 activations, their scales and sums, aligned to 64 bytes.
constexpr size_t MultiplyScratchBytes(size_t inputs) {
  return kMultiplyMostRows *
         (inputs + inputs / kWeightGroup * 2 * (sizeof(float) + sizeof(int32_t)));
}

struct MultiplyBlocksArgs {
  WeightFormat format;               // one of kWeightFormats
  size_t rows = 0;                   // 1 .. kMultiplyMostRows
  size_t inputs = 0;                 // a multiple of 32, with super groups of 256
  size_t tiles = 0;                  // of 16 outputs
  const float* x = nullptr;          // [rows, inputs]
  const uint8_t* weights = nullptr;  // [tiles], aligned to 64 bytes
  const float* bias = nullptr;       // [tiles * 16] or null
  float* y = nullptr;                // [rows, y_stride], of which tiles * 16 are written
  size_t y_stride = 0;
  uint8_t* scratch = nullptr;  // MultiplyScratchBytes(inputs)
};
using MultiplyBlocksFn = void (*)(const MultiplyBlocksArgs&);

// Fastest first; the last is the scalar reference, which runs anywhere.
std::span<const KernelVariant<MultiplyBlocksFn>> MultiplyBlocksVariants();

}  // namespace qevict
