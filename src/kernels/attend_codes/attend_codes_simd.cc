// All SIMD levels of AttendCodes; compiled once per level.
#include "kernels/attend_codes/attend_codes.h"
#include "kernels/attend_codes/page_windows.h"
#include "kernels/simd/code_product.h"
#include "kernels/simd/code_scales.h"
#include "kernels/simd/page_weights.h"
#include "kernels/simd/softmax_tile.h"

namespace qevict {
namespace {

// Rows that pass over the pages together; what is known of a row before any code lies on the stack.
constexpr size_t kBandRows = 256;

struct Page {
  const uint8_t* codes;
  size_t ahead;       // bytes from this page to the next, modulo 2^64; 0 for the last
  size_t begin, end;  // token slots within the page
  PageWindows windows;
  HWY_ALIGN float key_scale[kCodePageTokens];
  HWY_ALIGN float value_scale[kCodePageTokens];
};

struct Band {
  Band(const AttendCodesArgs& call, size_t first, size_t count);

  const AttendCodesArgs& args;
  size_t first_row, rows;
  int32_t sum_without_q[kBandRows];  // what a sum of key codes starts from
  HWY_ALIGN float m[kBandRows + kRowLanes];
  HWY_ALIGN float d[kBandRows + kRowLanes];
};

// scores[r, t] of the blocks of 16 tokens that the page's range touches; holds the biases before.
template <uint32_t kBits, size_t kRows>
HWY_NOINLINE void ScorePage(const Band& band, size_t row, const Page& page, float* scores) {
  const AttendCodesArgs& args = band.args;
  const CodeFormat& format = args.format;
  const size_t block_bytes = format.key_block_bytes();
  const CodeUnpacker<Half::kKeys, kBits> unpacker(LevelsOf(kBits));
  const float key_unit = LevelsOf(kBits).unit;
  const size_t third_offset = format.head_dim / 16 * kCodeLineBytes;
  const auto step = [&]<size_t kVectors>(size_t first) QEVICT_INLINE_LAMBDA {
    CodeLines<kVectors> lines;
    lines.stride = kCodeLineBytes;
    // The first rows ask for the next page; the others find it on its way.
    lines.ahead = row == band.first_row ? page.ahead : 0;
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) {
      const uint8_t* block = page.codes + (first + v) / kBlockVectors * block_bytes;
      lines.at[v] = block + (first + v) % kBlockVectors * kFloatLanes * sizeof(int32_t);
      lines.third[v] = lines.at[v] + third_offset;
    }
    Sums<kRows, kVectors> sums;
    sums.Start(band.sum_without_q + row - band.first_row);
    const auto* q = reinterpret_cast<const uint8_t*>(args.q) + row * format.head_dim;
    const size_t depth = kBits == 4 ? format.head_dim / 8 : format.head_dim / 16;
    CodeProduct<Half::kKeys, kBits, kRows, kVectors>::Add(unpacker, lines, depth,
                                                          {q, format.head_dim}, sums);
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      const FloatVec q_scale = hn::Set(FloatTag(), args.q_scale[row + r] * key_unit);
#pragma GCC unroll 8
      for (size_t v = 0; v < kVectors; ++v) {
        const size_t t = (first + v) * kFloatLanes;
        float* to = scores + r * kCodePageTokens + t;
        const FloatVec scaled =
            hn::Mul(hn::ConvertTo(FloatTag(), sums.at[r][v]), LoadFloats(page.key_scale + t));
        StoreFloats(args.bias == nullptr ? hn::Mul(scaled, q_scale)
                                         : hn::MulAdd(scaled, q_scale, LoadFloats(to)),
                    to);
      }
    }
  };
  const size_t first_block = page.begin / kCodeBlockTokens;
  const size_t blocks = (page.end + kCodeBlockTokens - 1) / kCodeBlockTokens - first_block;
  ForEachStep<CodeStepVectors<Half::kKeys>(kRows)>(first_block * kBlockVectors,
                                                   blocks * kBlockVectors, step);
}

// o[r] = rescale[r] o[r] + factor[r] sum_t weights[r, t] level(value code of t).
template <uint32_t kBits, size_t kRows>
HWY_NOINLINE void AddPageValues(const Band& band, size_t row, const Page& page,
                                const PageWeights<kRows>& weights) {
  const CodeFormat& format = band.args.format;
  constexpr size_t kGroupTokens = 32 / kBits;
  const CodeUnpacker<Half::kValues, kBits> unpacker(LevelsOf(kBits));
  const size_t first_group = page.begin / kGroupTokens;
  const size_t groups = (page.end + kGroupTokens - 1) / kGroupTokens - first_group;
  const size_t group_bytes = format.value_group_bytes();
  const uint8_t* codes = page.codes + format.keys_bytes() + first_group * group_bytes;
  float* o = band.args.state.o + row * format.head_dim;

  const auto step = [&]<size_t kVectors>(size_t first) QEVICT_INLINE_LAMBDA {
    CodeLines<kVectors> lines;
    lines.stride = group_bytes;
    lines.ahead = row == band.first_row ? page.ahead : 0;
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) {
      lines.at[v] = lines.third[v] = codes + (first + v) * kFloatLanes * sizeof(int32_t);
    }
    Sums<kRows, kVectors> sums;
    sums.Start(weights.sum_without_codes);
    CodeProduct<Half::kValues, kBits, kRows, kVectors>::Add(
        unpacker, lines, groups, {weights.bytes + first_group * kGroupTokens, kCodePageTokens},
        sums);
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      const FloatVec old = hn::Set(FloatTag(), weights.rescale[r]);
      const FloatVec factor = hn::Set(FloatTag(), weights.factor[r]);
#pragma GCC unroll 8
      for (size_t v = 0; v < kVectors; ++v) {
        float* to = o + r * format.head_dim + (first + v) * kFloatLanes;
        StoreFloats(hn::MulAdd(hn::ConvertTo(FloatTag(), sums.at[r][v]), factor,
                               hn::Mul(LoadFloats(to), old)),
                    to);
      }
    }
  };
  ForEachStep<CodeStepVectors<Half::kValues>(kRows)>(0, format.head_dim / kFloatLanes, step);
}

template <size_t kRows>
void AttendPage(Band& band, size_t row, const Page& page) {
  const AttendCodesArgs& args = band.args;
  HWY_ALIGN float scores[kRows * kCodePageTokens];

  if (args.bias != nullptr) {
    page.windows.SpreadBiases(args.bias + row * args.bias_stride, args.bias_stride, kRows, scores);
  }
  switch (args.format.key_bits) {
    case 2:
      ScorePage<2, kRows>(band, row, page, scores);
      break;
    case 3:
      ScorePage<3, kRows>(band, row, page, scores);
      break;
    default:
      ScorePage<4, kRows>(band, row, page, scores);
  }
  if (page.end - page.begin < kCodePageTokens) {
    for (size_t r = 0; r < kRows; ++r) {
      float* s = scores + r * kCodePageTokens;
      for (size_t t = 0; t < page.begin; ++t) s[t] = kMinusInfinity;
      for (size_t t = page.end; t < kCodePageTokens; ++t) s[t] = kMinusInfinity;
    }
  }
  PageWeights<kRows> weights;
  HWY_ALIGN float p[kRows * kCodePageTokens];
  weights.Weigh(scores, page.value_scale, LevelsOf(args.format.value_bits),
                {band.m + row - band.first_row, band.d + row - band.first_row},
                args.masses == nullptr ? nullptr : p);
  if (args.masses != nullptr) {
    page.windows.AddMasses(p, weights.rescale, kRows,
                           {args.masses + row * args.mass_stride, args.mass_stride});
  }
  switch (args.format.value_bits) {
    case 1:
      AddPageValues<1, kRows>(band, row, page, weights);
      break;
    case 2:
      AddPageValues<2, kRows>(band, row, page, weights);
      break;
    default:
      AddPageValues<4, kRows>(band, row, page, weights);
  }
}

Band::Band(const AttendCodesArgs& call, size_t first, size_t count)
    : args(call), first_row(first), rows(count) {
  const CodeFormat& format = args.format;
  const int32_t offset = kUnsignedCodes<Half::kKeys> ? LevelsOf(format.key_bits).offset : 0;
  for (size_t r = 0; r < rows; ++r) {
    const int8_t* q = args.q + (first_row + r) * format.head_dim;
    int32_t sum = 0;
    for (size_t c = 0; c < format.head_dim; ++c) sum += q[c];
    sum_without_q[r] = -offset * sum;
    m[r] = args.state.m[first_row + r];
    d[r] = args.state.d[first_row + r];
  }
  // Read with the last rows, never used.
  for (size_t r = rows; r < rows + kRowLanes; ++r) m[r] = d[r] = 0.0f;
}

void AttendBand(Band& band) {
  const AttendCodesArgs& args = band.args;
  Page page;
  const size_t chunks = (band.rows + kMaxCodeRows - 1) / kMaxCodeRows;
  const size_t last_page = (args.end - 1) / kCodePageTokens;
  page.windows.Start(args);
  for (size_t i = args.begin / kCodePageTokens; i <= last_page; ++i) {
    const size_t slot = i * kCodePageTokens;
    page.codes = args.pages[i];
    page.ahead = i == last_page ? 0
                                : reinterpret_cast<uintptr_t>(args.pages[i + 1]) -
                                      reinterpret_cast<uintptr_t>(page.codes);
    page.begin = args.begin > slot ? args.begin - slot : 0;
    page.end = args.end - slot < kCodePageTokens ? args.end - slot : kCodePageTokens;
    const uint8_t* scales = page.codes + args.format.key_scales_offset();
    PrefetchAhead(scales, page.ahead);
    PrefetchAhead(scales + kCacheLineBytes, page.ahead);
    ExpandScales<kKeyScaleSteps>(scales, kCodePageTokens, page.key_scale);
    ExpandScales<kValueScaleSteps>(scales + kCodePageTokens, kCodePageTokens, page.value_scale);
    if (args.bias != nullptr || args.masses != nullptr) page.windows.Next(page.begin, page.end);
    for (size_t chunk = 0, row = 0; chunk < chunks; ++chunk) {
      const size_t rows = (band.rows - row) / (chunks - chunk);  // as equal as they can be
      WithCodeRows(rows,
                   [&]<size_t kRows>() { AttendPage<kRows>(band, band.first_row + row, page); });
      row += rows;
    }
  }
}

}  // namespace

void QEVICT_AT_LEVEL(AttendCodes)(const AttendCodesArgs& args) {
  if (args.masses != nullptr) {
    for (size_t r = 0; r < args.rows; ++r) {
      for (size_t w = 0; w < (args.end - args.begin) / args.omega; ++w) {
        args.masses[r * args.mass_stride + w] = 0.0f;
      }
    }
  }
  for (size_t row = 0; row < args.rows; row += kBandRows) {
    const size_t left = args.rows - row;
    Band band(args, row, left < kBandRows ? left : kBandRows);
    AttendBand(band);
    for (size_t r = 0; r < band.rows; ++r) {
      args.state.m[row + r] = band.m[r];
      args.state.d[row + r] = band.d[r];
    }
  }
}

}  // namespace qevict
