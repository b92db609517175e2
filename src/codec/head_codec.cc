#include "codec/head_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "core/check.h"

namespace qevict {

namespace {

// Sums over channels keep this many partial sums: the compiler may not reorder additions of floats,
// and so would not vectorise a single one.
constexpr size_t kLanes = 16;
constexpr size_t kMaxLevels = 16;

float SumOfSquares(const float* x, size_t size) {
  float sums[kLanes] = {};
  for (size_t c = 0; c < size; c += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += x[c + lane] * x[c + lane];
  }
  float sum = 0;
  for (float lane : sums) sum += lane;
  return sum;
}

// codes[c] = the nearest level to x[c] / deviation, the lower of two. Returns
// sum_c x[c] level(codes[c]).
float CodeNearest(uint32_t bits, float deviation, const float* x, size_t size, uint8_t* codes) {
  const CodeLevels& levels = LevelsOf(bits);
  const size_t count = size_t{1} << bits;
  // Level i + 1 is `step` above level i and nearer from `limit` on.
  float limit[kMaxLevels], step[kMaxLevels];
  for (size_t i = 0; i + 1 < count; ++i) {
    limit[i] = 0.5f * float(levels.table[i] + levels.table[i + 1]) * levels.unit * deviation;
    step[i] = float(levels.table[i + 1] - levels.table[i]);
  }
  // Level by level over the whole row: GCC 12 vectorises this, and not 16 channels in registers.
  alignas(64) float level[kMaxCodedHeadDim];
  alignas(64) int32_t code[kMaxCodedHeadDim];
  std::fill_n(level, size, float(levels.table[0]));
  std::fill_n(code, size, 0);
  for (size_t i = 0; i + 1 < count; ++i) {
    const float from = limit[i], up = step[i];
    for (size_t c = 0; c < size; ++c) {
      level[c] += x[c] > from ? up : 0.0f;
      code[c] += x[c] > from ? 1 : 0;
    }
  }
  float products[kLanes] = {};
  for (size_t c = 0; c < size; c += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) products[lane] += x[c + lane] * level[c + lane];
  }
  for (size_t c = 0; c < size; ++c) codes[c] = uint8_t(code[c]);
  float product = 0;
  for (float lane : products) product += lane;
  return product * levels.unit;
}

// The IP scale of x, with its codes at the row's own deviation; 0 or not finite where the squares
// leave the range of f32.
float CodeRow(uint32_t bits, const float* x, size_t size, uint8_t* codes) {
  const float square = SumOfSquares(x, size);
  const float product = CodeNearest(bits, std::sqrt(square / float(size)), x, size, codes);
  return product > 0 ? square / product : 0.0f;
}

// How a tier stores the scales of one side.
struct ScaleGrid {
  float common;
  int steps;  // per octave

  float ValueOf(uint8_t byte) const {
    return common * std::exp2(float(int(byte) - 128) / float(steps));
  }
};

void QuantizeRow(uint32_t bits, ScaleGrid grid, const float* x, size_t size, CodedRow& row) {
  const float scale = CodeRow(bits, x, size, row.codes.data());
  // Written so that a NaN takes the first way out.
  const float step = std::round(std::log2(scale / grid.common) * float(grid.steps)) + 128.0f;
  const bool too_small = !(step >= 0.0f), too_large = step > 255.0f;
  row.scale = too_small ? 0 : too_large ? 255 : uint8_t(step);
  if (too_small || too_large) CodeNearest(bits, grid.ValueOf(row.scale), x, size, row.codes.data());
}

// x[c] = scale level(codes[c]).
void Levels(uint32_t bits, float scale, const CodedRow& row, size_t size, float* x) {
  const CodeLevels& levels = LevelsOf(bits);
  float values[kMaxLevels];
  for (size_t i = 0; i < kMaxLevels; ++i) values[i] = levels.table[i] * (levels.unit * scale);
  for (size_t c = 0; c < size; ++c) x[c] = values[row.codes[c] % kMaxLevels];
}

bool IsScale(float value) { return value >= 0x1p-40f && value <= 0x1p40f; }

Status Invalid(const char* message) { return Fail(ErrorCode::kInvalidArgument, message); }

}  // namespace

Status HeadTables::Validate(uint32_t head_dim) const {
  if (weight.size() != head_dim || mean.size() != head_dim)
    return Invalid("the codec's tables are not those of this head size; measure them again");
  if (!std::ranges::all_of(weight, IsScale) || !IsScale(key_scale) || !IsScale(value_scale))
    return Invalid("the codec's tables hold a weight or scale that is out of range; measure again");
  if (!std::ranges::all_of(mean, [](float m) { return std::abs(m) <= 0x1p40f; }))
    return Invalid("the codec's tables hold a mean that is out of range; measure them again");
  return {};
}

HeadCodec::HeadCodec(CodeFormat format, HeadTables tables, const Rotation* rotation)
    : format_(format), tables_(std::move(tables)), rotation_(rotation) {
  QEVICT_CHECK(tables_.Validate(format.head_dim).ok());
  QEVICT_CHECK_EQ(rotation->head_dim(), format.head_dim);
  QEVICT_CHECK(format.key_bits >= 2 && format.key_bits <= 4);
  QEVICT_CHECK(format.value_bits == 1 || format.value_bits == 2 || format.value_bits == 4);
  for (float a : tables_.weight) inverse_weight_.push_back(1.0f / a);
}

void HeadCodec::KeyToCodeSpace(const float* key, const float* mu, float* x) const {
  const float* weight = tables_.weight.data();
  for (uint32_t c = 0; c < format_.head_dim; ++c) x[c] = weight[c] * (key[c] - mu[c]);
  rotation_->Forward(x);
}

void HeadCodec::EncodeKey(const float* key, const float* mu, CodedRow& row) const {
  alignas(64) float x[kMaxCodedHeadDim];
  KeyToCodeSpace(key, mu, x);
  QuantizeRow(format_.key_bits, {tables_.key_scale, kKeyScaleSteps}, x, format_.head_dim, row);
}

void HeadCodec::EncodeValue(const float* value, CodedRow& row) const {
  alignas(64) float x[kMaxCodedHeadDim];
  std::copy_n(value, format_.head_dim, x);
  rotation_->Forward(x);
  QuantizeRow(format_.value_bits, {tables_.value_scale, kValueScaleSteps}, x, format_.head_dim,
              row);
}

void HeadCodec::DecodeKey(const CodedRow& row, const float* mu, float* key) const {
  const ScaleGrid grid = {tables_.key_scale, kKeyScaleSteps};
  Levels(format_.key_bits, grid.ValueOf(row.scale), row, format_.head_dim, key);
  rotation_->Inverse(key);
  for (uint32_t c = 0; c < format_.head_dim; ++c) key[c] = key[c] * inverse_weight_[c] + mu[c];
}

void HeadCodec::DecodeValue(const CodedRow& row, float* value) const {
  const ScaleGrid grid = {tables_.value_scale, kValueScaleSteps};
  Levels(format_.value_bits, grid.ValueOf(row.scale), row, format_.head_dim, value);
  rotation_->Inverse(value);
}

float HeadCodec::TransformQuery(const float* q, int8_t* out) const {
  alignas(64) float x[kMaxCodedHeadDim];
  for (uint32_t c = 0; c < format_.head_dim; ++c) x[c] = q[c] * inverse_weight_[c];
  rotation_->Forward(x);
  float largest = 0;
  for (uint32_t c = 0; c < format_.head_dim; ++c) largest = std::max(largest, std::abs(x[c]));
  // Too small for its inverse to be finite: scores of zero, which is what they are.
  const float inverse = largest > 0x1p-100f ? 127.0f / largest : 0.0f;
  for (uint32_t c = 0; c < format_.head_dim; ++c) {
    const float scaled = x[c] * inverse;
    const float inside = scaled > -127.0f ? std::min(scaled, 127.0f) : -127.0f;
    // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, into the low bits.
    out[c] = int8_t(std::bit_cast<int32_t>(inside + 0x1.8p23f) - 0x4b400000);
  }
  return largest > 0x1p-100f ? largest / 127.0f * tables_.key_scale : 0.0f;
}

void HeadCodec::FinishValues(float* o) const {
  rotation_->Inverse(o);
  for (uint32_t c = 0; c < format_.head_dim; ++c) o[c] *= tables_.value_scale;
}

float HeadCodec::KeyScale(const float* key, const float* mu) const {
  alignas(64) float x[kMaxCodedHeadDim];
  uint8_t codes[kMaxCodedHeadDim];
  KeyToCodeSpace(key, mu, x);
  return CodeRow(format_.key_bits, x, format_.head_dim, codes);
}

float HeadCodec::ValueScale(const float* value) const {
  alignas(64) float x[kMaxCodedHeadDim];
  uint8_t codes[kMaxCodedHeadDim];
  std::copy_n(value, format_.head_dim, x);
  rotation_->Forward(x);
  return CodeRow(format_.value_bits, x, format_.head_dim, codes);
}

}  // namespace qevict
