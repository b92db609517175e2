// Scale bytes to floats: 2^((byte - 128) / kSteps), relative error at most 2e-7.
#pragma once

#include "kernels/simd/dot_bytes.h"

namespace qevict {
namespace {

template <int kSteps>
HWY_INLINE void ExpandScales(const uint8_t* bytes, size_t count, float* scales) {
  static_assert(kSteps == 16 || kSteps == 32);
  constexpr int kStepBits = kSteps == 32 ? 5 : 4;
  const FloatTag d;
  const SumTag di;
  const hn::Rebind<uint8_t, FloatTag> narrow;
#if HWY_MAX_BYTES == 64
  // 2^(i / 32): the top of the byte goes into the exponent, the rest picks the factor.
  HWY_ALIGN static constexpr float kRoots[32] = {
      1.0f,        1.02189720f, 1.04427373f, 1.06714046f, 1.09050775f, 1.11438668f, 1.13878864f,
      1.16372490f, 1.18920708f, 1.21524739f, 1.24185789f, 1.26905096f, 1.29683959f, 1.32523665f,
      1.35425556f, 1.38390982f, 1.41421354f, 1.44518077f, 1.47682619f, 1.50916445f, 1.54221082f,
      1.57598090f, 1.61049032f, 1.64575541f, 1.68179286f, 1.71861923f, 1.75625217f, 1.79470909f,
      1.83400810f, 1.87416768f, 1.91520655f, 1.95714414f};
  const SumVec zero = hn::Set(di, (128 >> kStepBits) << 23);
  for (size_t t = 0; t < count; t += kFloatLanes) {
    const SumVec byte = hn::PromoteTo(di, hn::LoadU(narrow, bytes + t));
    const SumVec exponent = hn::Sub(hn::ShiftLeft<23>(hn::ShiftRight<kStepBits>(byte)), zero);
    const SumVec index = kSteps == 32 ? byte : hn::Add(byte, byte);
    const SumVec root{_mm512_castps_si512(
        _mm512_permutex2var_ps(hn::Load(d, kRoots).raw, index.raw, hn::Load(d, kRoots + 16).raw))};
    StoreFloats(hn::BitCast(d, hn::Add(root, exponent)), scales + t);
  }
#else
  // 2^r with r in [-1/2, 1/2), the polynomial of simd/exp.h.
  const SumVec low = hn::Set(di, kSteps - 1), half = hn::Set(di, kSteps / 2);
  const SumVec zero = hn::Set(di, 128 >> kStepBits);
  for (size_t t = 0; t < count; t += kFloatLanes) {
    const SumVec byte = hn::PromoteTo(di, hn::LoadU(narrow, bytes + t));
    const SumVec shifted = hn::Add(byte, half);
    const FloatVec r = hn::Mul(hn::ConvertTo(d, hn::Sub(hn::And(shifted, low), half)),
                               hn::Set(d, 1.0f / float(kSteps)));
    const SumVec exponent = hn::ShiftLeft<23>(hn::Sub(hn::ShiftRight<kStepBits>(shifted), zero));
    FloatVec p = hn::MulAdd(r, hn::Set(d, 0x1.5bba14p-10f), hn::Set(d, 0x1.3cea88p-7f));
    p = hn::MulAdd(p, r, hn::Set(d, 0x1.c6b752p-5f));
    p = hn::MulAdd(p, r, hn::Set(d, 0x1.ebf9bcp-3f));
    p = hn::MulAdd(p, r, hn::Set(d, 0x1.62e42ap-1f));
    p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
    StoreFloats(hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent)), scales + t);
  }
#endif
}

}  // namespace
}  // namespace qevict
