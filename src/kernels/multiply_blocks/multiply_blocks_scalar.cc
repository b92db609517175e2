#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/multiply_blocks/multiply_blocks.h"
#include "kernels/multiply_blocks/rounded_rows.h"

namespace qevict {
namespace {

void RoundGroup(const float* x, int8_t* codes, float& scale, int32_t* sums) {
  float largest = 0.0f;
  bool finite = true;
  for (size_t i = 0; i < kWeightGroup; ++i) {
    finite &= std::isfinite(x[i]);
    largest = std::max(largest, std::abs(x[i]));
  }
  scale = finite ? largest * (1.0f / 127.0f) : std::numeric_limits<float>::quiet_NaN();
  const float inverse = finite && largest > kLeastActivation ? 127.0f / largest : 0.0f;
  sums[0] = sums[1] = 0;
  for (size_t i = 0; i < kWeightGroup; ++i) {
    codes[i] = finite ? int8_t(std::nearbyint(x[i] * inverse)) : int8_t{0};
    sums[i / 16] += codes[i];
  }
}

float F16At(const uint8_t* at) {
  F16 value;
  std::memcpy(&value, at, sizeof value);
  return F16ToF32(value);
}

// One output of a tile.
class Output {
 public:
  Output(const MultiplyBlocksArgs& args, size_t output)
      : format_(args.format),
        layout_(LayOutTile(args.format)),
        tile_(args.weights + output / kTileOutputs * TileBytes(args.format, args.inputs)),
        lane_(output % kTileOutputs) {}

  int32_t Level(size_t group, size_t input) const {
    const size_t v = input / 4;
    const auto byte = [&](size_t part, size_t vector) {
      const uint8_t* bytes = tile_ + layout_.Group(group) + part;
      return uint32_t(bytes[(vector * kTileOutputs + lane_) * 4 + input % 4]);
    };
    uint32_t code = format_.bits == 8 ? byte(0, v) : byte(0, v % 4) >> (v < 4 ? 0 : 4) & 15u;
    if (format_.bits == 5) code |= (byte(layout_.tops, 0) >> v & 1u) << 4;
    if (format_.bits == 6) code |= (byte(layout_.tops, v / 4) >> (v % 4 * 2) & 3u) << 4;
    return int32_t(code) - (format_.minimums ? 0 : 1 << (format_.bits - 1));
  }
  // Of half `half` of a group: inputs 16 * half onwards.
  float Scale(size_t group, size_t half) const {
    return Number(layout_.Super(group), layout_.Group(group) + layout_.scales, half);
  }
  float Minimum(size_t group) const {
    return Number(layout_.Super(group) + kFactorBytes, layout_.Group(group) + layout_.minimums, 0);
  }

 private:
  float Number(size_t factors, size_t numbers, size_t half) const {
    if (format_.scales == Scales::kGroup) return F16At(tile_ + numbers + lane_ * sizeof(F16));
    const float factor = F16At(tile_ + factors + lane_ * sizeof(F16));
    if (format_.scales == Scales::kSuperGroup) return factor * float(tile_[numbers + lane_]);
    return factor * float(int8_t(tile_[numbers + half * kTileOutputs + lane_]));
  }

  WeightFormat format_;
  TileLayout layout_;
  const uint8_t* tile_;
  size_t lane_;
};

}  // namespace

void MultiplyBlocksScalar(const MultiplyBlocksArgs& args) {
  const RoundedRows rows(args.scratch, args.inputs);
  for (size_t r = 0; r < args.rows; ++r) {
    for (size_t g = 0; g < rows.groups; ++g) {
      const size_t first = r * args.inputs + g * kWeightGroup, at = r * rows.groups + g;
      RoundGroup(args.x + first, rows.codes + first, rows.scales[at], rows.sums + at * 2);
    }
  }
  for (size_t o = 0; o < args.tiles * kTileOutputs; ++o) {
    const Output output(args, o);
    for (size_t r = 0; r < args.rows; ++r) {
      float y = args.bias == nullptr ? 0.0f : args.bias[o];
      for (size_t g = 0; g < rows.groups; ++g) {
        const size_t at = r * rows.groups + g;
        const int8_t* x = rows.codes + r * args.inputs + g * kWeightGroup;
        for (size_t half = 0; half < 2; ++half) {
          int32_t sum = 0;
          for (size_t i = half * 16; i < half * 16 + 16; ++i) sum += output.Level(g, i) * x[i];
          y += output.Scale(g, half) * rows.scales[at] * float(sum);
          if (args.format.minimums)
            y += output.Minimum(g) * (rows.scales[at] * float(rows.sums[at * 2 + half]));
        }
      }
      args.y[r * args.y_stride + o] = y;
    }
  }
}

}  // namespace qevict
