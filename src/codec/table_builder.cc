#include "codec/table_builder.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace qevict {

namespace {

// A channel that hardly varies, or that queries hardly read, keeps this share of the mean channel's
// energy: weights stay within 10^(+-1.5) of each other on either count.
constexpr double kLeastEnergy = 1e-6;

bool IsFinite(const float* x, size_t size) {
  // Larger numbers than an f16 cache can hold are no better than infinities.
  return std::all_of(x, x + size, [](float value) { return std::abs(value) <= 1e6f; });
}

void RaiseToLeast(std::vector<double>& energy) {
  double mean = 0;
  for (double e : energy) mean += e / double(energy.size());
  for (double& e : energy) e = mean > 0 ? std::max(e, kLeastEnergy * mean) : 1.0;
}

float ClampScale(double scale) { return float(std::clamp(scale, 0x1p-40, 0x1p40)); }

// Of a running geometric mean.
struct LogMean {
  double sum = 0;
  size_t count = 0;

  void Add(float scale) {
    if (!(scale > 0) || !std::isfinite(scale)) return;
    sum += std::log(double(scale));
    ++count;
  }
  double value() const { return count == 0 ? 1.0 : std::exp(sum / double(count)); }
};

}  // namespace

TableBuilder::TableBuilder(CodeFormat format, const MeanRotation* blocks, const Rotation* rotation)
    : format_(format),
      blocks_(blocks),
      rotation_(rotation),
      query_squares_(format.head_dim),
      key_sums_(format.head_dim),
      key_squares_(format.head_dim) {
  QEVICT_CHECK_EQ(blocks->pairs().head_dim, format.head_dim);
  QEVICT_CHECK_EQ(rotation->head_dim(), format.head_dim);
  sample_.reserve(kSampleTokens * 2 * format.head_dim);
  sample_positions_.reserve(kSampleTokens);
}

void TableBuilder::AddQuery(const float* q) {
  if (!IsFinite(q, format_.head_dim)) return;
  for (uint32_t c = 0; c < format_.head_dim; ++c) query_squares_[c] += double(q[c]) * q[c];
  ++queries_;
}

void TableBuilder::AddToken(const float* key, const float* value, const PositionTurn& at) {
  if (at.position < blocks_->first()) return;
  if (!IsFinite(key, format_.head_dim) || !IsFinite(value, format_.head_dim)) return;
  float turned[kMaxCodedHeadDim];
  TurnBack(blocks_->pairs(), at.turn.data(), key, turned);
  for (uint32_t c = 0; c < format_.head_dim; ++c) {
    key_sums_[c] += turned[c];
    key_squares_[c] += double(turned[c]) * turned[c];
  }
  Sample(key, value, at.position);
  ++tokens_;
}

// Vitter's algorithm R: after n tokens each is in the sample with the same probability.
void TableBuilder::Sample(const float* key, const float* value, Position position) {
  size_t place = sample_positions_.size();
  if (place < kSampleTokens) {
    sample_.resize(sample_.size() + size_t{2} * format_.head_dim);
    sample_positions_.emplace_back();
  } else {
    uint64_t z = random_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    place = (z ^ (z >> 31)) % (tokens_ + 1);
    if (place >= kSampleTokens) return;
  }
  float* row = sample_.data() + place * 2 * format_.head_dim;
  std::copy_n(key, format_.head_dim, row);
  std::copy_n(value, format_.head_dim, row + format_.head_dim);
  sample_positions_[place] = position;
}

void TableBuilder::TiePairs(std::vector<double>& energy) const {
  const RopePairs& pairs = blocks_->pairs();
  for (size_t i = 0; i < pairs.pairs(); ++i) {
    double& a = energy[pairs.first(i)];
    double& b = energy[pairs.second(i)];
    a = b = (a + b) / 2;
  }
}

std::vector<float> TableBuilder::Weights(const std::vector<float>& mean) const {
  const RopePairs& pairs = blocks_->pairs();
  std::vector<double> w = query_squares_, variance = key_squares_;
  float shrinking[kMaxCodedHeadDim];
  MeanTurn(pairs, Position(0), blocks_->bias_tokens(), shrinking);
  for (uint32_t c = 0; c < format_.head_dim; ++c) {
    const double m = mean[c];
    variance[c] = std::max(0.0, variance[c] / double(tokens_) - m * m);
  }
  for (size_t i = 0; i < pairs.pairs(); ++i) {
    const size_t a = pairs.first(i), b = pairs.second(i);
    const double kept = double(shrinking[a]) * shrinking[a] + double(shrinking[b]) * shrinking[b];
    const double left = std::max(0.0, 1.0 - kept);
    variance[a] += left * mean[a] * mean[a];
    variance[b] += left * mean[b] * mean[b];
  }
  for (std::vector<double>* energy : {&w, &variance}) {
    TiePairs(*energy);
    RaiseToLeast(*energy);
  }
  double log_sum = 0;
  std::vector<double> weight(format_.head_dim);
  for (uint32_t c = 0; c < format_.head_dim; ++c) {
    weight[c] = std::pow(w[c] / variance[c], 0.25);
    log_sum += std::log(weight[c]) / format_.head_dim;
  }
  std::vector<float> normalised;
  for (double a : weight) normalised.push_back(float(a / std::exp(log_sum)));
  return normalised;
}

void TableBuilder::MeasureScales(HeadTables& tables) const {
  const HeadCodec codec(format_, tables, rotation_);
  LogMean key_scale, value_scale;
  for (size_t i = 0; i < sample_positions_.size(); ++i) {
    const float* row = sample_.data() + i * 2 * format_.head_dim;
    const Position first = blocks_->first_of(blocks_->BlockOf(sample_positions_[i]));
    float mu[kMaxCodedHeadDim];
    MeanTurn(blocks_->pairs(), first, blocks_->bias_tokens(), mu);
    Turn(blocks_->pairs(), mu, tables.mean.data(), mu);
    key_scale.Add(codec.KeyScale(row, mu));
    value_scale.Add(codec.ValueScale(row + format_.head_dim));
  }
  tables.key_scale = ClampScale(key_scale.value());
  tables.value_scale = ClampScale(value_scale.value());
}

HeadTables TableBuilder::Build() const {
  HeadTables tables;
  tables.weight.assign(format_.head_dim, 1.0f);
  tables.mean.assign(format_.head_dim, 0.0f);
  if (tokens_ == 0) return tables;
  for (uint32_t c = 0; c < format_.head_dim; ++c)
    tables.mean[c] = float(key_sums_[c] / double(tokens_));
  tables.weight = Weights(tables.mean);
  MeasureScales(tables);
  return tables;
}

}  // namespace qevict
