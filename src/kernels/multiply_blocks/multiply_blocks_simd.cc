// All SIMD levels of MultiplyBlocks; compiled once per level.
#include <iterator>
#include <limits>

#include "kernels/multiply_blocks/multiply_blocks.h"
#include "kernels/multiply_blocks/rounded_rows.h"
#include "kernels/simd/dot_bytes.h"
#include "kernels/simd/level.h"

namespace qevict {
namespace {

constexpr size_t kTileVector = kTileOutputs * 4;  // bytes
constexpr size_t kGroupVectors = kWeightGroup / kFloatLanes;
// Rows that share the unpacking of a group: what fits into the registers beside its codes.
constexpr size_t kRowsAtOnce = HWY_MAX_BYTES == 64 ? 8 : 4;
constexpr size_t kCodeVectors = 8;  // of a group, four inputs of every output each

void RoundGroup(const float* x, int8_t* codes, float& scale, int32_t* sums) {
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
  const FloatVec inverse = hn::Set(tag, finite && most > kLeastActivation ? 127.0f / most : 0.0f);
  hn::Vec<IntTag> total[2] = {hn::Zero(IntTag()), hn::Zero(IntTag())};
  for (size_t v = 0; v < kGroupVectors; ++v) {
    const auto rounded = finite ? hn::NearestInt(hn::Mul(values[v], inverse)) : hn::Zero(IntTag());
    auto& half = total[v * kFloatLanes / 16];
    half = hn::Add(half, rounded);
    hn::StoreU(hn::DemoteTo(CodeTag(), rounded), CodeTag(), codes + v * kFloatLanes);
  }
  for (size_t half = 0; half < 2; ++half)
    sums[half] = hn::GetLane(hn::SumOfLanes(IntTag(), total[half]));
}

template <WeightFormat kFormat>
constexpr TileLayout kLayout = LayOutTile(kFormat);

// Vector v has inputs 4v .. 4v + 3 of a group, of kFloatLanes outputs; `lanes`: the group's first
// byte of theirs.
template <WeightFormat kFormat>
HWY_INLINE void Unpack(const uint8_t* lanes, ByteVec (&codes)[kCodeVectors]) {
  constexpr size_t kTops = kLayout<kFormat>.tops;
  const ByteTag tag;
  if constexpr (kFormat.bits == 8) {
    ForEachConstant<kCodeVectors>([&]<size_t v>() QEVICT_INLINE_LAMBDA {
      codes[v] = hn::LoadU(tag, lanes + v * kTileVector);
    });
    return;
  }
  const ByteVec low = hn::Set(tag, uint8_t{0x0f});
  ForEachConstant<4>([&]<size_t j>() QEVICT_INLINE_LAMBDA {
    const ByteVec both = hn::LoadU(tag, lanes + j * kTileVector);
    codes[j] = hn::And(both, low);
    codes[j + 4] = hn::And(ShiftLineRight<4>(both), low);
  });
  if constexpr (kFormat.bits == 5) {
    const ByteVec tops = hn::LoadU(tag, lanes + kTops);
    const ByteVec bit = hn::Set(tag, uint8_t{0x10});
    ForEachConstant<4>([&]<size_t v>() QEVICT_INLINE_LAMBDA {
      codes[v] = hn::OrAnd(codes[v], ShiftLineLeft<4 - v>(tops), bit);
      codes[v + 4] = hn::OrAnd(codes[v + 4], ShiftLineRight<v>(tops), bit);
    });
  }
  if constexpr (kFormat.bits == 6) {
    const ByteVec bits = hn::Set(tag, uint8_t{0x30});
    ForEachConstant<2>([&]<size_t h>() QEVICT_INLINE_LAMBDA {
      const ByteVec tops = hn::LoadU(tag, lanes + kTops + h * kTileVector);
      ByteVec* at = codes + h * 4;
      at[0] = hn::OrAnd(at[0], ShiftLineLeft<4>(tops), bits);
      at[1] = hn::OrAnd(at[1], ShiftLineLeft<2>(tops), bits);
      at[2] = hn::OrAnd(at[2], tops, bits);
      at[3] = hn::OrAnd(at[3], ShiftLineRight<2>(tops), bits);
    });
  }
}

// What a code is above the level that it stands for where Dot multiplies the code itself, so that
// its share is taken from the sum. Below AVX-512 Dot multiplies the levels of codes of 8 bits.
template <WeightFormat kFormat>
constexpr int32_t Offset() {
  if (kFormat.minimums) return 0;
#if HWY_MAX_BYTES == 64
  return 1 << (kFormat.bits - 1);
#else
  return kFormat.bits == 8 ? 0 : 1 << (kFormat.bits - 1);
#endif
}

// sum + the products of codes [kFirst, kFirst + kCount) with their activations.
template <WeightFormat kFormat, size_t kFirst, size_t kCount>
HWY_INLINE SumVec Dot(SumVec sum, const ByteVec (&codes)[kCodeVectors], const int8_t* x) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(x);
#if HWY_MAX_BYTES == 32
  if constexpr (kFormat.bits == 8) {
    // Unsigned codes would overflow sixteen bits: |level| times the activation with its sign.
    ForEachConstant<kCount>([&]<size_t v>() QEVICT_INLINE_LAMBDA {
      const __m256i level = _mm256_xor_si256(codes[kFirst + v].raw, _mm256_set1_epi8(int8_t(-128)));
      const __m256i factor = _mm256_sign_epi8(BroadcastFour(bytes + (kFirst + v) * 4).raw, level);
      sum = hn::Add(sum, Widen(PairVec{_mm256_maddubs_epi16(_mm256_abs_epi8(level), factor)}));
    });
  } else {
    constexpr size_t kSums = size_t(MaxPairSums<Half::kKeys>(1 << (kFormat.bits - 1)));
    constexpr size_t kStep = kSums >= 4 ? 4 : 2;
    static_assert(kSums >= kStep && kCount % kStep == 0);
    ForEachConstant<kCount / kStep>([&]<size_t step>() QEVICT_INLINE_LAMBDA {
      constexpr size_t kAt = kFirst + step * kStep;
      PairVec pairs = PairSum<Half::kKeys>(codes[kAt], BroadcastFour(bytes + kAt * 4));
      ForEachConstant<kStep - 1>([&]<size_t v>() QEVICT_INLINE_LAMBDA {
        pairs = hn::Add(pairs, PairSum<Half::kKeys>(codes[kAt + v + 1],
                                                    BroadcastFour(bytes + (kAt + v + 1) * 4)));
      });
      sum = hn::Add(sum, Widen(pairs));
    });
  }
#else
  ForEachConstant<kCount>([&]<size_t v>() QEVICT_INLINE_LAMBDA {
    ByteVec code = codes[kFirst + v];
#if HWY_MAX_BYTES == 16
    if constexpr (kFormat.bits == 8) code = hn::Xor(code, hn::Set(ByteTag(), uint8_t{0x80}));
#endif
    sum = DotBytes<Half::kKeys>(sum, code, BroadcastFour(bytes + (kFirst + v) * 4));
  });
#endif
  return sum;
}

using UnsignedCodeTag = hn::Rebind<uint8_t, FloatTag>;

// Scales or minimums of a group, from the first of kFloatLanes outputs on.
template <Scales kScales>
HWY_INLINE FloatVec LoadNumbers(const F16* factors, const uint8_t* numbers) {
  if constexpr (kScales == Scales::kGroup) {
    return LoadFloats(reinterpret_cast<const F16*>(numbers));
  } else if constexpr (kScales == Scales::kSuperGroup) {
    const auto codes = hn::PromoteTo(IntTag(), hn::LoadU(UnsignedCodeTag(), numbers));
    return hn::Mul(LoadFloats(factors), hn::ConvertTo(FloatTag(), codes));
  } else {
    return hn::Mul(LoadFloats(factors), LoadFloats(reinterpret_cast<const int8_t*>(numbers)));
  }
}

// The first of kFloatLanes outputs of a tile.
struct Lanes {
  const uint8_t* tile;
  size_t lane;
};

// Rows [first, first + kRows) with these outputs, to y and its next rows.
template <WeightFormat kFormat, size_t kRows>
HWY_INLINE void MultiplyLanes(Lanes lanes, const RoundedRows& rows, size_t first, const float* bias,
                              float* y, size_t y_stride) {
  constexpr const TileLayout& kTile = kLayout<kFormat>;
  constexpr size_t kHalves = kFormat.scales == Scales::kSuperHalf ? 2 : 1;
  constexpr size_t kNumber = kFormat.scales == Scales::kGroup ? sizeof(F16) : 1;
  const FloatTag tag;
  FloatVec out[kRows];
  for (size_t r = 0; r < kRows; ++r) out[r] = bias == nullptr ? hn::Zero(tag) : LoadFloats(bias);
  for (size_t g = 0; g < rows.groups; ++g) {
    const uint8_t* group = lanes.tile + kTile.Group(g);
    const uint8_t* numbers = group + lanes.lane * kNumber;
    const auto* factors = reinterpret_cast<const F16*>(lanes.tile + kTile.Super(g)) + lanes.lane;
    ByteVec codes[kCodeVectors];
    Unpack<kFormat>(group + lanes.lane * 4, codes);
    FloatVec scale[kHalves];
    for (size_t half = 0; half < kHalves; ++half) {
      scale[half] =
          LoadNumbers<kFormat.scales>(factors, numbers + kTile.scales + half * kTileOutputs);
    }
    [[maybe_unused]] FloatVec minimum = hn::Zero(tag);
    if constexpr (kFormat.minimums) {
      minimum = LoadNumbers<kFormat.scales>(factors + kTileOutputs, numbers + kTile.minimums);
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      const size_t at = (first + r) * rows.groups + g;
      const int8_t* x = rows.codes + (first + r) * rows.inputs + g * kWeightGroup;
      const int32_t* sums = rows.sums + at * 2;
      const FloatVec x_scale = hn::Set(tag, rows.scales[at]);
      if constexpr (kHalves == 2) {
        const SumVec low = Dot<kFormat, 0, 4>(hn::Set(SumTag(), sums[0]), codes, x);
        const SumVec high = Dot<kFormat, 4, 4>(hn::Set(SumTag(), sums[1]), codes, x);
        out[r] = hn::MulAdd(hn::ConvertTo(tag, low), hn::Mul(scale[0], x_scale), out[r]);
        out[r] = hn::MulAdd(hn::ConvertTo(tag, high), hn::Mul(scale[1], x_scale), out[r]);
      } else {
        const SumVec sum = Dot<kFormat, 0, 8>(hn::Set(SumTag(), sums[0]), codes, x);
        out[r] = hn::MulAdd(hn::ConvertTo(tag, sum), hn::Mul(scale[0], x_scale), out[r]);
      }
      if constexpr (kFormat.minimums)
        out[r] = hn::MulAdd(minimum, hn::Set(tag, rows.products[at]), out[r]);
    }
  }
  for (size_t r = 0; r < kRows; ++r) StoreFloats(out[r], y + (first + r) * y_stride);
}

// The rows of a call as int8, and in `sums` what MultiplyLanes starts its sums from: the offsets'
// share, of a group in its first place, or of its halves.
template <WeightFormat kFormat>
void RoundRows(const MultiplyBlocksArgs& args, const RoundedRows& rows) {
  constexpr int32_t kOffset = Offset<kFormat>();
  for (size_t r = 0; r < args.rows; ++r) {
    for (size_t g = 0; g < rows.groups; ++g) {
      const size_t first = r * args.inputs + g * kWeightGroup, at = r * rows.groups + g;
      int32_t* sums = rows.sums + at * 2;
      RoundGroup(args.x + first, rows.codes + first, rows.scales[at], sums);
      rows.products[at] = rows.scales[at] * float(sums[0] + sums[1]);
      if (kFormat.scales != Scales::kSuperHalf) sums[0] += sums[1];
      for (size_t half = 0; half < 2; ++half) sums[half] *= -kOffset;
    }
  }
}

template <WeightFormat kFormat>
void MultiplyTiles(const MultiplyBlocksArgs& args) {
  const RoundedRows rows(args.scratch, args.inputs);
  RoundRows<kFormat>(args, rows);
  for (size_t t = 0; t < args.tiles; ++t) {
    for (size_t v = 0; v < kBlockVectors; ++v) {
      const Lanes lanes{args.weights + t * TileBytes(kFormat, args.inputs), v * kFloatLanes};
      const size_t output = t * kTileOutputs + lanes.lane;
      const float* bias = args.bias == nullptr ? nullptr : args.bias + output;
      float* y = args.y + output;
      size_t r = 0;
      for (; r + kRowsAtOnce <= args.rows; r += kRowsAtOnce)
        MultiplyLanes<kFormat, kRowsAtOnce>(lanes, rows, r, bias, y, args.y_stride);
      for (; r < args.rows; ++r) MultiplyLanes<kFormat, 1>(lanes, rows, r, bias, y, args.y_stride);
    }
  }
}

}  // namespace

void QEVICT_AT_LEVEL(MultiplyBlocks)(const MultiplyBlocksArgs& args) {
  ForEachConstant<std::size(kWeightFormats)>([&]<size_t i>() {
    if (args.format == kWeightFormats[i]) MultiplyTiles<kWeightFormats[i]>(args);
  });
}

}  // namespace qevict
