#include "model/block_weights.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace qevict {
namespace {

// How ggml stores 32 inputs of one output: scale, minimum, fifth bits, nibbles, each where the type
// has it.
struct StoredBlock {
  WeightFormat format;
  size_t minimum, fifths, nibbles, bytes;
};

std::optional<StoredBlock> StoredBlockOf(ggml_type type) {
  switch (type) {
    case GGML_TYPE_Q4_1:
      return StoredBlock{{4, true}, 2, 0, 4, 20};
    case GGML_TYPE_Q5_0:
      return StoredBlock{{5, false}, 0, 2, 6, 22};
    case GGML_TYPE_Q5_1:
      return StoredBlock{{5, true}, 2, 4, 8, 24};
    default:
      return std::nullopt;
  }
}

// Bit v of the result's byte b is bit 4v + b: of the inputs 4v + b.
void SpreadFifths(const uint8_t* stored, uint8_t* spread) {
  uint32_t bits;
  std::memcpy(&bits, stored, sizeof bits);
  for (uint32_t b = 0; b < 4; ++b) {
    uint32_t byte = 0;
    for (uint32_t v = 0; v < 8; ++v) byte |= (bits >> (4 * v + b) & 1u) << v;
    spread[b] = uint8_t(byte);
  }
}

// One output's row of blocks into its lanes of a tile.
void PackRow(const StoredBlock& stored, const uint8_t* row, size_t groups, size_t output,
             uint8_t* tile) {
  const TileLayout layout = LayOutTile(stored.format, groups * kWeightGroup);
  for (size_t g = 0; g < groups; ++g, row += stored.bytes) {
    for (size_t j = 0; j < 4; ++j) {
      std::memcpy(tile + ((g * 4 + j) * kTileOutputs + output) * 4, row + stored.nibbles + j * 4, 4);
    }
    const size_t lane = g * kTileOutputs + output;
    if (stored.format.bits == 5)
      SpreadFifths(row + stored.fifths, tile + layout.fifths + lane * 4);
    std::memcpy(tile + layout.scales + lane * sizeof(F16), row, sizeof(F16));
    if (stored.format.minimums) {
      std::memcpy(tile + layout.minimums + lane * sizeof(F16), row + stored.minimum, sizeof(F16));
    }
  }
}

constexpr size_t RoundUp64(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

std::unique_ptr<BlockWeights> BlockWeights::Plan(std::span<const StoredWeight> parts,
                                                 uint32_t inputs, Isa isa) {
  const auto stored = StoredBlockOf(parts.front().type);
  const bool fits = std::ranges::all_of(parts, [&](const StoredWeight& part) {
    return part.type == parts.front().type && part.outputs % kTileOutputs == 0;
  });
  // The scalar kernel is a reference, slower than ggml.
  if (!stored || !fits || inputs % kWeightGroup != 0 || isa == Isa::kScalar) return nullptr;
  std::unique_ptr<BlockWeights> weights(new BlockWeights);
  weights->multiply_ = SelectVariant(MultiplyBlocksVariants(), isa);
  weights->format_ = stored->format;
  weights->inputs_ = inputs;
  weights->tile_bytes_ = LayOutTile(stored->format, inputs).bytes;
  weights->scratch_bytes_ = RoundUp64(MultiplyScratchBytes(inputs));
  for (const StoredWeight& part : parts) weights->tiles_ += part.outputs / kTileOutputs;
  return weights;
}

Status BlockWeights::Pack(std::span<const StoredWeight> parts, const float* bias,
                          uint32_t threads) {
  bias_ = bias;
  QEVICT_ASSIGN_OR_RETURN(weights_, AlignedBuffer::Allocate(tiles_ * tile_bytes_));
  QEVICT_ASSIGN_OR_RETURN(scratch_, AlignedBuffer::Allocate(threads * scratch_bytes_));
  const StoredBlock stored = *StoredBlockOf(parts.front().type);
  const size_t groups = inputs_ / kWeightGroup;
  uint8_t* tile = weights_.as<uint8_t>();
  for (const StoredWeight& part : parts) {
    for (size_t output = 0; output < part.outputs; ++output) {
      PackRow(stored, part.bytes + output * groups * stored.bytes, groups, output % kTileOutputs,
              tile + output / kTileOutputs * tile_bytes_);
    }
    tile += part.outputs / kTileOutputs * tile_bytes_;
  }
  return {};
}

void BlockWeights::Multiply(const float* x, float* y, uint32_t rows, size_t thread,
                            size_t threads) {
  const size_t first = tiles_ * thread / threads, last = tiles_ * (thread + 1) / threads;
  const size_t outputs = tiles_ * kTileOutputs;
  for (size_t row = 0; first < last && row < rows; row += kMultiplyMostRows) {
    multiply_({.format = format_,
               .rows = std::min(kMultiplyMostRows, rows - row),
               .inputs = inputs_,
               .tiles = last - first,
               .x = x + row * inputs_,
               .weights = weights_.as<uint8_t>() + first * tile_bytes_,
               .bias = bias_ == nullptr ? nullptr : bias_ + first * kTileOutputs,
               .y = y + row * outputs + first * kTileOutputs,
               .y_stride = outputs,
               .scratch = scratch_.as<uint8_t>() + thread * scratch_bytes_});
  }
}

}  // namespace qevict
