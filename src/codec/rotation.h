// The orthogonal transform R of the channels of a key or value, which spreads a row's energy evenly
// over its channels, so that one scalar code fits them all:
//   R = (C (x) H) diag(sign),   head_dim = odd * power, power the largest power of two that divides
//   it
// H: Walsh-Hadamard matrix of `power`, C: DCT-II of `odd`, both orthonormal; R x . R y = x . y.
// sign[c] is +1 or -1, pseudo-random and the same for every model: it keeps a row that is constant
// over its channels, or periodic in them, from landing in one channel. Changing anything here makes
// every code unreadable that was written before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace qevict {

inline constexpr size_t kMaxCodedHeadDim = 256;

// Immutable: any number of threads may use it at once.
class Rotation {
 public:
  explicit Rotation(uint32_t head_dim);  // a multiple of 16, 16 .. 256

  // x[head_dim] := R x, in place. Costs head_dim * (log2(power) + odd) additions or products.
  void Forward(float* x) const;
  // x[head_dim] := R^T x: the inverse, up to rounding.
  void Inverse(float* x) const;

  uint32_t head_dim() const { return head_dim_; }

 private:
  static constexpr size_t kMaxOdd = kMaxCodedHeadDim / 16;

  uint32_t head_dim_, power_, odd_;
  std::array<float, kMaxCodedHeadDim> sign_;      // times 1 / sqrt(power)
  std::array<float, kMaxOdd* kMaxOdd> dct_ = {};  // [odd, odd], row-major
};

}  // namespace qevict
