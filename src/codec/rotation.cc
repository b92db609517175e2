#include "codec/rotation.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"

namespace qevict {

namespace {

// Bit c % 64 of word c / 64: channel c changes its sign.
constexpr uint64_t SignWord(uint64_t index) {
  // SplitMix64 (Steele, Lea and Flood, 2014).
  uint64_t z = 0x71e71c7c0dec0001u + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// x := sqrt(n) H x. One stage reads two halves and writes their sums and differences interleaved
// (Pease, 1968), so that all stages, those of neighbouring channels too, are the same loop over
// whole vectors.
void Hadamard(float* x, size_t n) {
  alignas(64) float buffer[kMaxCodedHeadDim];
  float *from = x, *to = buffer;
  for (size_t stage = 1; stage < n; stage *= 2) {
    const float* __restrict low = from;
    const float* __restrict high = from + n / 2;
    float* __restrict out = to;
    for (size_t i = 0; i < n / 2; ++i) {
      out[2 * i] = low[i] + high[i];
      out[2 * i + 1] = low[i] - high[i];
    }
    std::swap(from, to);
  }
  if (from != x) std::copy_n(from, n, x);
}

enum class Direction { kForward, kInverse };

// Row i of the result is sum_j matrix[i, j] * row j of x, or with the transposed matrix.
void MixRows(float* x, const float* matrix, size_t odd, size_t power, Direction direction) {
  const size_t i_step = direction == Direction::kForward ? odd : 1;
  const size_t j_step = direction == Direction::kForward ? 1 : odd;
  alignas(64) float mixed[kMaxCodedHeadDim] = {};
  for (size_t i = 0; i < odd; ++i) {
    float* __restrict out = mixed + i * power;
    for (size_t j = 0; j < odd; ++j) {
      const float factor = matrix[i * i_step + j * j_step];
      const float* __restrict in = x + j * power;
      for (size_t h = 0; h < power; ++h) out[h] += factor * in[h];
    }
  }
  std::copy_n(mixed, odd * power, x);
}

}  // namespace

Rotation::Rotation(uint32_t head_dim)
    : head_dim_(head_dim), power_(head_dim & -head_dim), odd_(head_dim / std::max(power_, 1u)) {
  QEVICT_CHECK(head_dim >= 16 && head_dim % 16 == 0 && head_dim <= kMaxCodedHeadDim);
  const float norm = 1.0f / std::sqrt(float(power_));
  for (uint32_t c = 0; c < kMaxCodedHeadDim; ++c)
    sign_[c] = SignWord(c / 64) >> (c % 64) & 1 ? -norm : norm;
  for (uint32_t i = 0; i < odd_; ++i) {
    for (uint32_t j = 0; j < odd_; ++j) {
      const double angle = std::numbers::pi * i * (j + 0.5) / odd_;
      dct_[i * odd_ + j] = float(std::cos(angle) * std::sqrt((i == 0 ? 1.0 : 2.0) / odd_));
    }
  }
}

void Rotation::Forward(float* x) const {
  for (uint32_t c = 0; c < head_dim_; ++c) x[c] *= sign_[c];
  if (odd_ > 1) MixRows(x, dct_.data(), odd_, power_, Direction::kForward);
  for (uint32_t row = 0; row < odd_; ++row) Hadamard(x + row * power_, power_);
}

void Rotation::Inverse(float* x) const {
  for (uint32_t row = 0; row < odd_; ++row) Hadamard(x + row * power_, power_);
  if (odd_ > 1) MixRows(x, dct_.data(), odd_, power_, Direction::kInverse);
  for (uint32_t c = 0; c < head_dim_; ++c) x[c] *= sign_[c];
}

}  // namespace qevict
