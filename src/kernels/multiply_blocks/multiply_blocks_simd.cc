// All SIMD levels of MultiplyBlocks; compiled once per level.
#include <algorithm>
#include <limits>

#include "kernels/multiply_blocks/multiply_blocks.h"
#include "kernels/multiply_blocks/rounded_rows.h"
#include "kernels/simd/dot_bytes.h"
#include "kernels/simd/level.h"

namespace qevict {
namespace {

constexpr size_t kVectorBytes = kFloatLanes * 4;
constexpr size_t kGroupVectors = kWeightGroup / kFloatLanes;  // of floats

void RoundGroup(const float* x, int8_t* codes, float& scale, int32_t& sum) {
  const FloatTag tag;
  FloatVec values[kGroupVectors], largest = hn::Zero(tag), unlike = hn::Zero(tag);
  for (size_t v = 0; v < kGroupVectors; ++v) {
    values[v] = LoadFloats(x + v * kFloatLanes);
    largest = hn::Max(largest, hn::Abs(values[v]));
    unlike = hn::Add(unlike, hn::Sub(values[v], values[v]));  // NaN of what is not finite
  }
  const float most = hn::GetLane(hn::MaxOfLanes(tag, largest));
  const bool finite = hn::AllTrue(tag, hn::Eq(unlike, hn::Zero(tag)));
  scale = finite ? most * (1.0f / 127.0f) : std::numeric_limits<float>::quiet_NaN();
  const FloatVec inverse = hn::Set(tag, finite && most > 0.0f ? 127.0f / most : 0.0f);
  hn::Vec<IntTag> total = hn::Zero(IntTag());
  for (size_t v = 0; v < kGroupVectors; ++v) {
    const auto rounded = finite ? hn::NearestInt(hn::Mul(values[v], inverse)) : hn::Zero(IntTag());
    total = hn::Add(total, rounded);
    hn::StoreU(hn::DemoteTo(CodeTag(), rounded), CodeTag(), codes + v * kFloatLanes);
  }
  sum = hn::GetLane(hn::SumOfLanes(IntTag(), total));
}

// One vector's lanes of a tile: kFloatLanes outputs.
struct Lanes {
  const uint8_t *codes, *fifths, *scales, *minimums;
  size_t ahead;
};

// The eight vectors of codes of a group; vector v has inputs 4v .. 4v + 3 of every output.
template <uint32_t kBits>
HWY_INLINE void Unpack(const Lanes& lanes, size_t group, ByteVec (&codes)[8]) {
  const ByteTag tag;
  const ByteVec low = hn::Set(tag, uint8_t{0x0f});
  constexpr size_t kTileVector = kTileOutputs * 4;
  ForEachConstant<4>([&]<size_t j>() QEVICT_INLINE_LAMBDA {
    const ByteVec both = hn::LoadU(tag, lanes.codes + (group * 4 + j) * kTileVector);
    codes[j] = hn::And(both, low);
    codes[j + 4] = hn::And(ShiftLineRight<4>(both), low);
  });
  if constexpr (kBits == 5) {
    const ByteVec fifths = hn::LoadU(tag, lanes.fifths + group * kTileVector);
    const ByteVec bit = hn::Set(tag, uint8_t{0x10});
    ForEachConstant<4>([&]<size_t v>() QEVICT_INLINE_LAMBDA {
      codes[v] = hn::OrAnd(codes[v], ShiftLineLeft<4 - v>(fifths), bit);
      codes[v + 4] = hn::OrAnd(codes[v + 4], ShiftLineRight<v>(fifths), bit);
    });
  }
}

// sum + the products of a group's codes with its activations.
HWY_INLINE SumVec Dot(SumVec sum, const ByteVec (&codes)[8], const int8_t* x) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(x);
#if HWY_MAX_BYTES == 32
  static_assert(MaxPairSums<Half::kKeys>(16) >= 4);
  ForEachConstant<2>([&]<size_t half>() QEVICT_INLINE_LAMBDA {
    PairVec pairs = PairSum<Half::kKeys>(codes[half * 4], BroadcastFour(bytes + half * 16));
    ForEachConstant<3>([&]<size_t v>() QEVICT_INLINE_LAMBDA {
      constexpr size_t at = half * 4 + v + 1;
      pairs = hn::Add(pairs, PairSum<Half::kKeys>(codes[at], BroadcastFour(bytes + at * 4)));
    });
    sum = hn::Add(sum, Widen(pairs));
  });
#else
  ForEachConstant<8>([&]<size_t v>() QEVICT_INLINE_LAMBDA {
    sum = DotBytes<Half::kKeys>(sum, codes[v], BroadcastFour(bytes + v * 4));
  });
#endif
  return sum;
}

// Rows [first, first + kRows) with kFloatLanes outputs, to y and its next rows.
template <uint32_t kBits, bool kMinimums, size_t kRows>
HWY_INLINE void MultiplyLanes(const Lanes& lanes, const RoundedRows& rows, size_t first,
                              const float* bias, float* y, size_t y_stride) {
  const FloatTag tag;
  FloatVec out[kRows];
  for (size_t r = 0; r < kRows; ++r)
    out[r] = bias == nullptr ? hn::Zero(tag) : LoadFloats(bias);
  for (size_t g = 0; g < rows.groups; ++g) {
    ByteVec codes[8];
    for (size_t line = 0; line < 4; ++line)
      PrefetchLine(lanes.codes + lanes.ahead + (g * 4 + line) * kCacheLineBytes);
    if constexpr (kBits == 5) PrefetchLine(lanes.fifths + lanes.ahead + g * kCacheLineBytes);
    if (g % 2 == 0) PrefetchLine(lanes.scales + lanes.ahead + g * kCacheLineBytes / 2);
    Unpack<kBits>(lanes, g, codes);
    constexpr size_t kTileScales = kTileOutputs * sizeof(F16);
    const FloatVec scale =
        LoadFloats(reinterpret_cast<const F16*>(lanes.scales + g * kTileScales));
    [[maybe_unused]] const FloatVec minimum =
        kMinimums ? LoadFloats(reinterpret_cast<const F16*>(lanes.minimums + g * kTileScales))
                  : hn::Zero(tag);
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      const size_t at = (first + r) * rows.groups + g;
      const int32_t offset = kMinimums ? 0 : -(1 << (kBits - 1)) * rows.sums[at];
      const SumVec sum = Dot(hn::Set(SumTag(), offset), codes,
                             rows.codes + (first + r) * rows.inputs + g * kWeightGroup);
      out[r] = hn::MulAdd(hn::ConvertTo(tag, sum),
                          hn::Mul(scale, hn::Set(tag, rows.scales[at])), out[r]);
      if constexpr (kMinimums) {
        out[r] = hn::MulAdd(minimum, hn::Set(tag, rows.scales[at] * float(rows.sums[at])), out[r]);
      }
    }
  }
  for (size_t r = 0; r < kRows; ++r) StoreFloats(out[r], y + (first + r) * y_stride);
}

template <uint32_t kBits, bool kMinimums>
void MultiplyTiles(const MultiplyBlocksArgs& args) {
  const RoundedRows rows(args.scratch, args.inputs);
  for (size_t r = 0; r < args.rows; ++r) {
    for (size_t g = 0; g < rows.groups; ++g) {
      const size_t first = r * args.inputs + g * kWeightGroup, at = r * rows.groups + g;
      RoundGroup(args.x + first, rows.codes + first, rows.scales[at], rows.sums[at]);
    }
  }
  const TileLayout layout = LayOutTile(args.format, args.inputs);
  for (size_t t = 0; t < args.tiles; ++t) {
    for (size_t v = 0; v < kBlockVectors; ++v) {
      const uint8_t* tile = args.weights + t * layout.bytes;
      const size_t bytes = v * kVectorBytes, halves = v * kFloatLanes * sizeof(F16);
      const Lanes lanes{tile + bytes, tile + layout.fifths + bytes, tile + layout.scales + halves,
                        tile + layout.minimums + halves, layout.bytes};
      const size_t output = t * kTileOutputs + v * kFloatLanes;
      const float* bias = args.bias == nullptr ? nullptr : args.bias + output;
      float* y = args.y + output;
      size_t r = 0;
      for (; r + 4 <= args.rows; r += 4)
        MultiplyLanes<kBits, kMinimums, 4>(lanes, rows, r, bias, y, args.y_stride);
      for (; r < args.rows; ++r)
        MultiplyLanes<kBits, kMinimums, 1>(lanes, rows, r, bias, y, args.y_stride);
    }
  }
}

}  // namespace

void QEVICT_AT_LEVEL(MultiplyBlocks)(const MultiplyBlocksArgs& args) {
  if (args.format.bits == 4) {
    args.format.minimums ? MultiplyTiles<4, true>(args) : MultiplyTiles<4, false>(args);
  } else {
    args.format.minimums ? MultiplyTiles<5, true>(args) : MultiplyTiles<5, false>(args);
  }
}

}  // namespace qevict
