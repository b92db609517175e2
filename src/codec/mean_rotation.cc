#include "codec/mean_rotation.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "core/check.h"

namespace qevict {

namespace {

// sin(tokens a / 2) / (tokens sin(a / 2)); at multiples of 2 pi, where all positions have the same
// angle, its limit.
double Shrinking(double angle, double tokens) {
  const double below = std::sin(angle / 2);
  if (std::abs(below) < 1e-9) return std::cos(tokens * angle / 2) / std::cos(angle / 2);
  return std::sin(tokens * angle / 2) / (tokens * below);
}

}  // namespace

void MeanTurn(const RopePairs& pairs, Position first, uint32_t tokens, float* turn) {
  const double middle = first.value + (tokens - 1) * 0.5;
  for (size_t i = 0; i < pairs.pairs(); ++i) {
    const double shrinking = Shrinking(pairs.angles[i], tokens);
    const double angle = pairs.angles[i] * middle;
    turn[pairs.first(i)] = float(shrinking * std::cos(angle));
    turn[pairs.second(i)] = float(shrinking * std::sin(angle));
  }
  std::fill(turn + pairs.dims(), turn + pairs.head_dim, 1.0f);
}

void Turn(const RopePairs& pairs, const float* turn, const float* x, float* out) {
  for (size_t i = 0; i < pairs.pairs(); ++i) {
    const size_t a = pairs.first(i), b = pairs.second(i);
    const float xa = x[a], xb = x[b];
    out[a] = xa * turn[a] - xb * turn[b];
    out[b] = xa * turn[b] + xb * turn[a];
  }
  for (size_t c = pairs.dims(); c < pairs.head_dim; ++c) out[c] = x[c];
}

void TurnBack(const RopePairs& pairs, const float* turn, const float* x, float* out) {
  for (size_t i = 0; i < pairs.pairs(); ++i) {
    const size_t a = pairs.first(i), b = pairs.second(i);
    const float xa = x[a], xb = x[b];
    out[a] = xa * turn[a] + xb * turn[b];
    out[b] = xb * turn[a] - xa * turn[b];
  }
  for (size_t c = pairs.dims(); c < pairs.head_dim; ++c) out[c] = x[c] * turn[c];
}

MeanRotation::MeanRotation(RopePairs pairs, Position first, uint32_t bias_tokens)
    : pairs_(std::move(pairs)), first_(first), bias_tokens_(bias_tokens) {
  QEVICT_CHECK_LT(0u, bias_tokens);
  QEVICT_CHECK_LT(0u, pairs_.head_dim);
  QEVICT_CHECK_LE(pairs_.dims(), pairs_.head_dim);
}

Status MeanRotation::Grow(size_t blocks) {
  if (blocks <= this->blocks()) return {};
  const size_t chunks = (blocks - this->blocks() - 1) / kChunkRows + 1;
  // Asked once: each chunk alone would fit while the last of them no longer does.
  if (chunks > AvailableMemoryBytes() / chunk_bytes())
    return Fail(ErrorCode::kOutOfMemory,
                "the rotated means of the codec need more memory than is "
                "available; use a shorter context");
  std::vector<AlignedBuffer> added;
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    QEVICT_ASSIGN_OR_RETURN(auto buffer, AlignedBuffer::Allocate(chunk_bytes()));
    const size_t first = this->blocks() + chunk * kChunkRows;
    for (size_t row = 0; row < kChunkRows; ++row)
      MeanTurn(pairs_, first_of(first + row), bias_tokens_,
               buffer.as<float>() + row * pairs_.head_dim);
    added.push_back(std::move(buffer));
  }
  std::move(added.begin(), added.end(), std::back_inserter(chunks_));
  return {};
}

}  // namespace qevict
