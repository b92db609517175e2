// Measures the HeadTables of one (layer, KV head) from rows as the cache sees them: queries and
// keys after RoPE, values. With keys turned back by their positions, k', and E over everything fed:
//   m    = E[k']
//   w    = E[q^2], averaged over each RoPE pair
//   s^2  = E[(k' - m)^2] + |m|^2 (1 - shrinking^2) / 2, averaged likewise; the second term is what
//          the mean of a bias block leaves of m
//   a    = sqrt(sqrt(w) / s), divided by its geometric mean
// a minimises the noise of the scores: a rotated code's error is spread evenly, so that noise is in
// proportion to (sum_i a_i^2 s_i^2) (sum_i w_i / a_i^2). Tied, a does not depend on the position.
// key_scale and value_scale are the geometric means of the scales of a sample of the rows.
//
// Memory does not grow: moments, and a sample of kSampleTokens rows. Only the constructor and Build
// allocate. One thread per builder.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "codec/head_codec.h"
#include "codec/mean_rotation.h"
#include "codec/rotation.h"
#include "qevict/ids.h"

namespace qevict {

// The turn of one position: one serves every head of a layer.
struct PositionTurn {
  PositionTurn(const RopePairs& pairs, Position at) : position(at) {
    MeanTurn(pairs, at, 1, turn.data());
  }
  Position position;
  std::array<float, kMaxCodedHeadDim> turn;
};

class TableBuilder {
 public:
  static constexpr size_t kSampleTokens = 64;

  // `blocks` says where bias blocks are and how RoPE turns; its rows are not used. Both are
  // borrowed.
  TableBuilder(CodeFormat format, const MeanRotation* blocks, const Rotation* rotation);

  // Every query head of the KV head's group counts alike. Rows are [head_dim]; one that holds
  // something that is not finite is left out.
  void AddQuery(const float* q);
  // Tokens before the first bias block are never coded, and are left out: a sequence's first keys
  // are unlike all others.
  void AddToken(const float* key, const float* value, const PositionTurn& at);

  // Of what was fed so far. Without queries all w are alike; without tokens a is 1, m is 0 and the
  // scales are 1. Tables always pass Validate().
  HeadTables Build() const;

  uint64_t tokens() const { return tokens_; }
  uint64_t queries() const { return queries_; }

 private:
  void Sample(const float* key, const float* value, Position position);
  void TiePairs(std::vector<double>& energy) const;
  std::vector<float> Weights(const std::vector<float>& mean) const;
  void MeasureScales(HeadTables& tables) const;

  CodeFormat format_;
  const MeanRotation* blocks_;
  const Rotation* rotation_;
  uint64_t tokens_ = 0, queries_ = 0;
  uint64_t random_ = 1;                                         // SplitMix64, of the sample
  std::vector<double> query_squares_, key_sums_, key_squares_;  // [head_dim]; keys turned back
  std::vector<float> sample_;                                   // [<= kSampleTokens, 2, head_dim]
  std::vector<Position> sample_positions_;
};

}  // namespace qevict
