// The mean of the keys before RoPE, m, stands at position p as R_p m. Over a block of consecutive
// positions its mean is mu = mean_p R_p m: per RoPE pair a turn by the mean angle and a shrinking.
// The codec takes mu off a key and the score gets q . mu back, one number per query row and block.
//
// A *turn* is a row of head_dim floats: for pair i with channels x = first(i), y = second(i)
//   turn[x] = mean_p cos(angle_i p),   turn[y] = mean_p sin(angle_i p),   other channels 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "codec/rope_pairs.h"
#include "core/aligned_buffer.h"
#include "qevict/ids.h"
#include "qevict/status.h"

namespace qevict {

// turn[head_dim] of the positions first .. first + tokens - 1 (tokens > 0), by the closed form
//   mean_p e^(i a p) = e^(i a (first + (tokens - 1) / 2)) sin(tokens a / 2) / (tokens sin(a / 2)),
// in double: within 1e-9 at position 1e6 before it is rounded to f32.
void MeanTurn(const RopePairs& pairs, Position first, uint32_t tokens, float* turn);

// out := the mean turn of x, and the transposed one, which is the inverse for a single position.
// Pairs are complex numbers: x times `turn`, and x times its conjugate. [head_dim] each; out may be
// x.
// By a mean instead of a turn, TurnBack makes of a query q what gives its product with the mean at
// every turn: z = TurnBack(mean, q) has sum_c z[c] turn[c] = q . Turn(turn, mean).
void Turn(const RopePairs& pairs, const float* turn, const float* x, float* out);
void TurnBack(const RopePairs& pairs, const float* turn, const float* x, float* out);

// The turns of a model's bias blocks: block b holds the `bias_tokens` positions from
// first + b * bias_tokens on. Grows on demand; rows never move. Grow() must not run while another
// thread calls anything of the same table; everything else may run on any number of threads.
class MeanRotation {
 public:
  MeanRotation(RopePairs pairs, Position first, uint32_t bias_tokens);

  // Makes rows [0, blocks) readable. Error kOutOfMemory, and then nothing has changed.
  Status Grow(size_t blocks);

  // [head_dim], 64-byte aligned. Precondition: block < blocks(). The rows of kChunkRows blocks
  // from a multiple of it on lie one after another without gaps.
  const float* row(size_t block) const {
    return chunks_[block / kChunkRows].as<float>() + block % kChunkRows * pairs_.head_dim;
  }
  size_t blocks() const { return chunks_.size() * kChunkRows; }
  size_t bytes() const { return chunks_.size() * chunk_bytes(); }

  // Precondition: position >= first.
  size_t BlockOf(Position position) const { return (position.value - first_.value) / bias_tokens_; }
  Position first_of(size_t block) const {
    return Position(first_.value + uint32_t(block) * bias_tokens_);
  }
  const RopePairs& pairs() const { return pairs_; }
  Position first() const { return first_; }
  uint32_t bias_tokens() const { return bias_tokens_; }

  static constexpr size_t kChunkRows = 256;

 private:
  // A multiple of every page size up to 16 KiB, so that the allocator hands out no more.
  size_t chunk_bytes() const { return kChunkRows * pairs_.head_dim * sizeof(float); }

  RopePairs pairs_;
  Position first_;
  uint32_t bias_tokens_;
  std::vector<AlignedBuffer> chunks_;
};

}  // namespace qevict
