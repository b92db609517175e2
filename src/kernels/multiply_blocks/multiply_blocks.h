// Products of a few rows of activations with weights in blocks of 4 or 5 bits, as model files store
// them, from a layout in which neighbouring outputs lie in neighbouring lanes:
//   y[r, o] = bias[o] + sum over groups g of 32 inputs of
//             x_scale[r, g] sum_i (scale[o, g] level(o, i) + minimum[o, g]) x8[r, i]
// With minimums a level is the code, 0 .. 2^bits - 1, else code - 2^(bits - 1). The activations are
// rounded to int8 once per group, as ggml does:
//   x_scale = largest |x| of the group / 127    x8 = x / x_scale to the nearest, ties to even
// A group that holds a NaN or an infinity makes every output of its row NaN.
//
// Weights lie in tiles of 16 outputs. A tile holds, one behind the other, for its groups g in order
//   codes     [g][4][16 outputs][4] bytes: byte b of vector j has the low four bits of inputs
//             4j + b (low nibble) and 16 + 4j + b (high nibble)
//   fifths    [g][16 outputs][4] bytes, of 5 bits only: bit v of byte b is bit 4 of input 4v + b
//   scales    [g][16 outputs] f16
//   minimums  [g][16 outputs] f16, where the format has them
// and is padded to 64 bytes: no bit more than in the file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/f16.h"
#include "kernels/kernel_variant.h"

namespace qevict {

inline constexpr size_t kWeightGroup = 32;  // inputs that share a scale
inline constexpr size_t kTileOutputs = 16;
inline constexpr size_t kMultiplyMostRows = 32;  // of one call: they stay in L1 or L2

struct WeightFormat {
  uint32_t bits = 4;  // 4 or 5
  bool minimums = false;
  friend bool operator==(const WeightFormat&, const WeightFormat&) = default;
};

// Where the parts of a tile lie, in bytes from its first.
struct TileLayout {
  size_t fifths = 0, scales = 0, minimums = 0, bytes = 0;
};
constexpr TileLayout LayOutTile(WeightFormat format, size_t inputs) {
  const size_t groups = inputs / kWeightGroup, scales = groups * kTileOutputs * sizeof(F16);
  TileLayout layout;
  layout.fifths = groups * kTileOutputs * kWeightGroup / 2;
  layout.scales = layout.fifths + (format.bits == 5 ? groups * kTileOutputs * 4 : 0);
  layout.minimums = layout.scales + scales;
  layout.bytes = (layout.minimums + (format.minimums ? scales : 0) + 63) / 64 * 64;
  return layout;
}

// Room for int8 activations and their scales, aligned to 64 bytes.
constexpr size_t MultiplyScratchBytes(size_t inputs) {
  return kMultiplyMostRows * (inputs + inputs / kWeightGroup * (sizeof(float) + sizeof(int32_t)));
}

struct MultiplyBlocksArgs {
  WeightFormat format;
  size_t rows = 0;                   // 1 .. kMultiplyMostRows
  size_t inputs = 0;                 // a multiple of 32
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
