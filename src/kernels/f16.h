// Scalar IEEE binary16 conversion, the reference for the SIMD levels.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/kv_layout.h"

namespace qevict {

inline float F16ToF32(F16 h) {
  const uint32_t sign = uint32_t(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1fu, mantissa = h & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float subnormal = float(mantissa) * 0x1p-24f;
  return sign ? -subnormal : subnormal;
}

// Round to nearest even. Finite values beyond the range saturate at 65504; infinities and NaN stay
// what they are.
inline F16 F32ToF16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x7f800000u)
    return F16(sign | 0x7c00u | (magnitude > 0x7f800000u ? 0x200u : 0u));
  if (magnitude >= 0x477ff000u) return F16(sign | 0x7bffu);
  if (magnitude < 0x38800000u) {  // subnormal in f16: let the FPU round at the right place
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return F16(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return F16(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

}  // namespace qevict
