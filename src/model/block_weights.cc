#include "model/block_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "core/check.h"

namespace qevict {
namespace {

// A row of one output's blocks, as ggml stores them, into its lanes of a tile.
class RowPacker {
 public:
  RowPacker(WeightFormat format, size_t inputs)
      : format_(format), layout_(LayOutTile(format)), groups_(inputs / kWeightGroup) {}

  void Pack(ggml_type type, const uint8_t* row, size_t output, uint8_t* tile) {
    tile_ = tile;
    output_ = output;
    switch (type) {
      case GGML_TYPE_Q4_1:
        return PackGroups(row, {.bytes = 20, .minimum = 2, .codes = 4});
      case GGML_TYPE_Q5_0:
        return PackGroups(row, {.bytes = 22, .fifths = 2, .codes = 6});
      case GGML_TYPE_Q5_1:
        return PackGroups(row, {.bytes = 24, .minimum = 2, .fifths = 4, .codes = 8});
      case GGML_TYPE_Q8_0:
        return PackGroups(row, {.bytes = 34, .codes = 2});
      case GGML_TYPE_Q4_K:
        return PackSupers4Or5(row, 144, /*fifths=*/0, /*nibbles=*/16);
      case GGML_TYPE_Q5_K:
        return PackSupers4Or5(row, 176, /*fifths=*/16, /*nibbles=*/48);
      case GGML_TYPE_Q6_K:
        return PackSupers6(row);
      default:
        QEVICT_CHECK(!"Plan refuses other types");
    }
  }

 private:
  // Offsets in ggml's block of 32 inputs, which begins with its scale.
  struct GroupBlock {
    size_t bytes = 0, minimum = 0, fifths = 0, codes = 0;
  };
  void PackGroups(const uint8_t* row, GroupBlock block) {
    for (size_t g = 0; g < groups_; ++g, row += block.bytes) {
      const size_t group = layout_.Group(g);
      PutHalf(group + layout_.scales, row);
      if (format_.minimums) PutHalf(group + layout_.minimums, row + block.minimum);
      uint32_t fifths = 0;
      if (format_.bits == 5) std::memcpy(&fifths, row + block.fifths, sizeof fifths);
      const uint8_t* from = row + block.codes;
      Codes codes;
      for (uint32_t i = 0; i < 16; ++i) {
        codes[i] =
            uint8_t(format_.bits == 8 ? from[i] ^ 0x80 : (from[i] & 15) | (fifths >> i & 1) << 4);
        codes[i + 16] = uint8_t(format_.bits == 8 ? from[i + 16] ^ 0x80
                                                  : from[i] >> 4 | (fifths >> (i + 16) & 1) << 4);
      }
      PutCodes(group, codes);
    }
  }

  // ggml's block of 256 inputs: d, dmin, eight scales and minimums of six bits, fifth bits where
  // there are some, nibbles. Weights are d scale code - dmin minimum.
  void PackSupers4Or5(const uint8_t* row, size_t bytes, size_t fifths, size_t nibbles) {
    for (size_t super = 0; super * 8 < groups_; ++super, row += bytes) {
      PutHalf(layout_.Super(super * 8), row);
      const uint8_t negated[2] = {row[2], uint8_t(row[3] ^ 0x80)};
      PutHalf(layout_.Super(super * 8) + kFactorBytes, negated);
      for (size_t j = 0; j < 8; ++j) {
        const size_t group = layout_.Group(super * 8 + j);
        const uint8_t* six = row + 4;
        PutByte(group + layout_.scales,
                j < 4 ? six[j] & 63 : (six[j + 4] & 15) | (six[j - 4] >> 6) << 4);
        PutByte(group + layout_.minimums,
                j < 4 ? six[j + 4] & 63 : (six[j + 4] >> 4) | (six[j] >> 6) << 4);
        const uint8_t* from = row + nibbles + j / 2 * kWeightGroup;
        Codes codes;
        for (size_t i = 0; i < kWeightGroup; ++i) {
          const int fifth = fifths == 0 ? 0 : row[fifths + i] >> j & 1;
          codes[i] = uint8_t((j % 2 == 0 ? from[i] & 15 : from[i] >> 4) | fifth << 4);
        }
        PutCodes(group, codes);
      }
    }
  }

  // 128 bytes of low nibbles, 64 of top pairs, sixteen signed scales, d.
  void PackSupers6(const uint8_t* row) {
    for (size_t super = 0; super * 8 < groups_; ++super, row += 210) {
      PutHalf(layout_.Super(super * 8), row + 208);
      for (size_t j = 0; j < 8; ++j) {
        const size_t group = layout_.Group(super * 8 + j);
        for (size_t half = 0; half < 2; ++half)
          PutByte(group + layout_.scales + half * kTileOutputs, row[192 + j * 2 + half]);
        // Halves of 128 inputs; in each, four groups share 32 bytes of top pairs, and the first and
        // third, the second and fourth 32 bytes of nibbles.
        const uint8_t* from = row + j / 4 * 64 + j % 2 * 32;
        const uint8_t* pairs = row + 128 + j / 4 * 32;
        Codes codes;
        for (size_t i = 0; i < kWeightGroup; ++i) {
          const int low = j % 4 < 2 ? from[i] & 15 : from[i] >> 4;
          codes[i] = uint8_t(low | (pairs[i] >> (j % 4 * 2) & 3) << 4);
        }
        PutCodes(group, codes);
      }
    }
  }

  using Codes = std::array<uint8_t, kWeightGroup>;
  // `at`, `group`: bytes from the tile's first.
  void PutCodes(size_t group, const Codes& codes) {
    const auto four = [&codes](size_t v) {
      uint32_t word;
      std::memcpy(&word, codes.data() + v * 4, sizeof word);
      return word;
    };
    const auto put = [&](size_t part, size_t vector, uint32_t word) {
      std::memcpy(tile_ + group + part + (vector * kTileOutputs + output_) * 4, &word, sizeof word);
    };
    if (format_.bits == 8) {
      for (size_t v = 0; v < 8; ++v) put(0, v, four(v));
      return;
    }
    uint32_t tops[2] = {0, 0};  // of 5 bits the first
    for (uint32_t v = 0; v < 8; ++v) {
      if (v < 4) put(0, v, (four(v) & 0x0f0f0f0fu) | (four(v + 4) & 0x0f0f0f0fu) << 4);
      if (format_.bits == 5) tops[0] |= (four(v) >> 4 & 0x01010101u) << v;
      if (format_.bits == 6) tops[v / 4] |= (four(v) >> 4 & 0x03030303u) << (v % 4 * 2);
    }
    for (size_t h = 0; h + 4 < format_.bits; ++h) put(layout_.tops, h, tops[h]);
  }
  void PutByte(size_t at, int byte) { tile_[at + output_] = uint8_t(byte); }
  void PutHalf(size_t at, const uint8_t* half) {
    std::memcpy(tile_ + at + output_ * sizeof(F16), half, sizeof(F16));
  }

  WeightFormat format_;
  TileLayout layout_;
  size_t groups_, output_ = 0;
  uint8_t* tile_ = nullptr;
};

std::optional<WeightFormat> FormatOf(ggml_type type) {
  switch (type) {
    case GGML_TYPE_Q4_1:
      return kQ41;
    case GGML_TYPE_Q5_0:
      return kQ50;
    case GGML_TYPE_Q5_1:
      return kQ51;
    case GGML_TYPE_Q8_0:
      return kQ80;
    case GGML_TYPE_Q4_K:
      return kQ4K;
    case GGML_TYPE_Q5_K:
      return kQ5K;
    case GGML_TYPE_Q6_K:
      return kQ6K;
    default:
      return std::nullopt;
  }
}

// Fewer blocks of rows would leave threads idle behind the last one.
constexpr size_t kBlocksPerThread = 4;

constexpr size_t RoundUp64(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

std::unique_ptr<BlockWeights> BlockWeights::Plan(std::span<const StoredWeight> parts,
                                                 uint32_t inputs, Isa isa) {
  const auto format = FormatOf(parts.front().type);
  const bool fits = std::ranges::all_of(parts, [&](const StoredWeight& part) {
    return part.type == parts.front().type && part.outputs % kTileOutputs == 0;
  });
  // The scalar kernel is a reference, slower than ggml.
  if (!format || !fits || isa == Isa::kScalar) return nullptr;
  if (inputs % (format->scales == Scales::kGroup ? kWeightGroup : kWeightSuper) != 0)
    return nullptr;
  std::unique_ptr<BlockWeights> weights(new BlockWeights);
  weights->multiply_ = SelectVariant(MultiplyBlocksVariants(), isa);
  weights->format_ = *format;
  weights->inputs_ = inputs;
  weights->tile_bytes_ = TileBytes(*format, inputs);
  for (const StoredWeight& part : parts) weights->tiles_ += part.outputs / kTileOutputs;
  return weights;
}

size_t BlockWeights::scratch_bytes() const { return RoundUp64(MultiplyScratchBytes(inputs_)); }

Status BlockWeights::Pack(std::span<const StoredWeight> parts, const float* bias, Scratch scratch) {
  bias_ = bias;
  scratch_ = scratch;
  QEVICT_ASSIGN_OR_RETURN(weights_, AlignedBuffer::Allocate(tiles_ * tile_bytes_));
  RowPacker packer(format_, inputs_);
  uint8_t* tile = weights_.as<uint8_t>();
  for (const StoredWeight& part : parts) {
    const size_t row_bytes = ggml_row_size(part.type, int64_t(inputs_));
    for (size_t output = 0; output < part.outputs; ++output) {
      packer.Pack(part.type, part.bytes + output * row_bytes, output % kTileOutputs,
                  tile + output / kTileOutputs * tile_bytes_);
    }
    tile += part.outputs / kTileOutputs * tile_bytes_;
  }
  return {};
}

void BlockWeights::Multiply(const float* x, float* y, uint32_t rows, size_t thread,
                            size_t threads) {
  // Threads share out the rows where there are enough of them, or each would round them all.
  const bool by_rows = rows >= kBlocksPerThread * kMultiplyMostRows * threads;
  const size_t first = by_rows ? 0 : tiles_ * thread / threads;
  const size_t last = by_rows ? tiles_ : tiles_ * (thread + 1) / threads;
  const size_t outputs = tiles_ * kTileOutputs;
  const size_t start = by_rows ? thread * kMultiplyMostRows : 0;
  const size_t step = kMultiplyMostRows * (by_rows ? threads : 1);
  for (size_t row = start; first < last && row < rows; row += step) {
    multiply_({.format = format_,
               .rows = std::min(kMultiplyMostRows, rows - row),
               .inputs = inputs_,
               .tiles = last - first,
               .x = x + row * inputs_,
               .weights = weights_.as<uint8_t>() + first * tile_bytes_,
               .bias = bias_ == nullptr ? nullptr : bias_ + first * kTileOutputs,
               .y = y + row * outputs + first * kTileOutputs,
               .y_stride = outputs,
               .scratch = scratch_.base + thread * scratch_.thread_bytes});
  }
}

}  // namespace qevict
