// exp(x) for x <= 0, the exponentials of a softmax. Relative error below 3e-7
// (tests/kernels/exp_test); 0 below -86, where the result would be smaller than 4.5e-38, and at
// -inf.
#pragma once

#include "kernels/simd/level.h"

namespace qevict {
namespace {

// x log2(e) = n + r with |r| <= 1/2; exp(x) = 2^n 2^r. Adding 1.5 * 2^23 rounds to an integer and
// leaves it in the low bits, ready to be shifted into the exponent. r comes from an FMA, so it
// carries no rounding error of the product.
HWY_INLINE FloatVec ExpNonPositive(FloatVec x) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  const FloatVec log2e = hn::Set(d, 1.44269504088896341f), round = hn::Set(d, 0x1.8p23f);
  const FloatVec t = hn::MulAdd(x, log2e, round);
  const FloatVec r = hn::MulSub(x, log2e, hn::Sub(t, round));
  // Minimax polynomial of 2^r on [-1/2, 1/2] with p(0) = 1, so that exp(0) is 1: largest relative
  // error 9.2e-8, 1.7e-7 with the rounding of f32.
  FloatVec p = hn::Set(d, 0x1.5bba14p-10f);
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.3cea88p-7f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.c6b752p-5f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.ebf9bcp-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.62e42ap-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const FloatVec scaled =
      hn::BitCast(d, hn::Add(hn::BitCast(du, p), hn::ShiftLeft<23>(hn::BitCast(du, t))));
  return hn::IfThenElseZero(hn::Ge(x, hn::Set(d, -86.0f)), scaled);
}

}  // namespace
}  // namespace qevict
