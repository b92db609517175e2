#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/multiply_blocks/multiply_blocks.h"
#include "kernels/multiply_blocks/rounded_rows.h"

namespace qevict {
namespace {

void RoundGroup(const float* x, int8_t* codes, float& scale, int32_t& sum) {
  float largest = 0.0f;
  bool finite = true;
  for (size_t i = 0; i < kWeightGroup; ++i) {
    finite &= std::isfinite(x[i]);
    largest = std::max(largest, std::abs(x[i]));
  }
  scale = finite ? largest * (1.0f / 127.0f) : std::numeric_limits<float>::quiet_NaN();
  const float inverse = finite && largest > 0.0f ? 127.0f / largest : 0.0f;
  sum = 0;
  for (size_t i = 0; i < kWeightGroup; ++i) {
    codes[i] = finite ? int8_t(std::nearbyint(x[i] * inverse)) : int8_t{0};
    sum += codes[i];
  }
}

// Of output `output` of a tile, whose group is `group`.
uint32_t CodeAt(const uint8_t* tile, const TileLayout& layout, WeightFormat format, size_t group,
                size_t output, size_t input) {
  const size_t j = input % 16 / 4, b = input % 4;
  const uint8_t nibbles = tile[((group * 4 + j) * kTileOutputs + output) * 4 + b];
  uint32_t code = input < 16 ? nibbles & 15u : nibbles >> 4;
  if (format.bits == 5) {
    const uint8_t fifths = tile[layout.fifths + (group * kTileOutputs + output) * 4 + b];
    code |= (fifths >> (input / 4) & 1u) << 4;
  }
  return code;
}

float F16At(const uint8_t* at) {
  F16 value;
  std::memcpy(&value, at, sizeof value);
  return F16ToF32(value);
}

}  // namespace

void MultiplyBlocksScalar(const MultiplyBlocksArgs& args) {
  const RoundedRows rows(args.scratch, args.inputs);
  for (size_t r = 0; r < args.rows; ++r) {
    for (size_t g = 0; g < rows.groups; ++g) {
      const size_t first = r * args.inputs + g * kWeightGroup, at = r * rows.groups + g;
      RoundGroup(args.x + first, rows.codes + first, rows.scales[at], rows.sums[at]);
    }
  }
  const TileLayout layout = LayOutTile(args.format, args.inputs);
  const int32_t offset = args.format.minimums ? 0 : 1 << (args.format.bits - 1);
  for (size_t o = 0; o < args.tiles * kTileOutputs; ++o) {
    const uint8_t* tile = args.weights + o / kTileOutputs * layout.bytes;
    const size_t output = o % kTileOutputs;
    for (size_t r = 0; r < args.rows; ++r) {
      float y = args.bias == nullptr ? 0.0f : args.bias[o];
      for (size_t g = 0; g < rows.groups; ++g) {
        const size_t at = r * rows.groups + g, f16 = (g * kTileOutputs + output) * sizeof(F16);
        int32_t sum = -offset * rows.sums[at];
        for (size_t i = 0; i < kWeightGroup; ++i) {
          sum += int32_t(CodeAt(tile, layout, args.format, g, output, i)) *
                 rows.codes[r * args.inputs + g * kWeightGroup + i];
        }
        y += F16At(tile + layout.scales + f16) * rows.scales[at] * float(sum);
        if (args.format.minimums)
          y += F16At(tile + layout.minimums + f16) * (rows.scales[at] * float(rows.sums[at]));
      }
      args.y[r * args.y_stride + o] = y;
    }
  }
}

}  // namespace qevict
