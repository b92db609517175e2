// exp(x) for x <= 0, the exponentials of a softmax. Relative error at most 2e-7 + 1.4e-8 |x|, as
// tests/kernels/exp_test.cc checks; exactly 1 at 0; 0 below -86 (where the result would be smaller
// than 4.5e-38) and at -inf.
#pragma once

#include "kernels/simd/level.h"

namespace qevict {
namespace {

// Replaces each x by exp(x). Several vectors at once, because one exponential is a chain of ten
// dependent operations: taken one after another they fill the scheduler and wait for each other.
//
// x log2(e) = n + r with |r| <= 1/2; exp(x) = 2^n 2^r. Adding 1.5 * 2^23 rounds to an integer and
// leaves it in the low bits, ready to be shifted into the exponent. r comes from an FMA, so it
// carries no rounding error of the product.
template <size_t kVectors>
HWY_INLINE void ExpNonPositive(FloatVec (&x)[kVectors]) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  const FloatVec log2e = hn::Set(d, 1.44269504088896341f), round = hn::Set(d, 0x1.8p23f);
  FloatVec t[kVectors], r[kVectors], p[kVectors];
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) t[v] = hn::MulAdd(x[v], log2e, round);
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) r[v] = hn::Sub(t[v], round);
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) r[v] = hn::MulSub(x[v], log2e, r[v]);
    // Minimax polynomial of 2^r on [-1/2, 1/2] with p(0) = 1, so that exp(0) is 1: largest relative
    // error 9.2e-8, 1.7e-7 with the rounding of f32.
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) {
    p[v] = hn::MulAdd(r[v], hn::Set(d, 0x1.5bba14p-10f), hn::Set(d, 0x1.3cea88p-7f));
  }
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) p[v] = hn::MulAdd(p[v], r[v], hn::Set(d, 0x1.c6b752p-5f));
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) p[v] = hn::MulAdd(p[v], r[v], hn::Set(d, 0x1.ebf9bcp-3f));
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) p[v] = hn::MulAdd(p[v], r[v], hn::Set(d, 0x1.62e42ap-1f));
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) p[v] = hn::MulAdd(p[v], r[v], hn::Set(d, 1.0f));
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) {
    const auto exponent = hn::ShiftLeft<23>(hn::BitCast(du, t[v]));
    const FloatVec scaled = hn::BitCast(d, hn::Add(hn::BitCast(du, p[v]), exponent));
    x[v] = hn::IfThenElseZero(hn::Ge(x[v], hn::Set(d, -86.0f)), scaled);
  }
}

}  // namespace
}  // namespace qevict
