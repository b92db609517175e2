// Rows of f32 as int8 with an f16 scale per group (docs/formats/full-tier-q8.md), the scalar
// reference for the SIMD levels. With the largest |x| of a group of 32 channels, or of the 16 of a
// last group,
//   s = |x| / 127 rounded up to an f16, at most 65504     code = x / s to the nearest, ties to even
// so |x - s code| <= s / 2, s being within one f16 step of |x| / 127, as long as |x| <= 127 *
// 65504; what is larger saturates. A group that holds a NaN or an infinity gets the scale NaN, and
// every channel of it decodes to NaN.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/f16.h"
#include "kernels/kv_layout.h"

namespace qevict {

inline constexpr F16 kQ8NanScale = 0x7e00;

// The scale of a group whose largest |x| is `largest`, finite; an f16 value.
inline float Q8Scale(float largest) {
  const float wanted = largest * (1.0f / 127.0f);
  // Rounded up, not to the nearest: then the largest code is 127 also where f16 is coarse.
  if (wanted < 0x1p-14f) return std::ceil(wanted * 0x1p24f) * 0x1p-24f;  // subnormal in f16
  return std::min(std::bit_cast<float>((std::bit_cast<uint32_t>(wanted) + 0x1fffu) & ~0x1fffu),
                  65504.0f);
}

// `count` channels to codes `stride` apart. Returns the scale.
inline F16 EncodeQ8Group(const float* x, size_t count, int8_t* codes, size_t stride) {
  uint32_t largest = 0;  // |x| as bits, which order like numbers with NaN above infinity
  for (size_t c = 0; c < count; ++c) {
    largest = std::max(largest, std::bit_cast<uint32_t>(x[c]) & 0x7fffffffu);
  }
  if (largest >= 0x7f800000u) {
    for (size_t c = 0; c < count; ++c) codes[c * stride] = 0;
    return kQ8NanScale;
  }
  const float scale = Q8Scale(std::bit_cast<float>(largest));
  const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  for (size_t c = 0; c < count; ++c) {
    codes[c * stride] = int8_t(std::clamp(std::nearbyint(x[c] * inverse), -127.0f, 127.0f));
  }
  return F32ToF16(scale);
}

// Keys, or values, of slot `slot`. row: [head_dim].
inline void WriteQ8Key(const float* row, size_t slot, size_t head_dim, Q8Rows keys) {
  for (size_t c = 0; c < head_dim; c += kQ8GroupChannels) {
    keys.scales[ScaleOffset(slot, c / kQ8GroupChannels, head_dim)] =
        EncodeQ8Group(row + c, std::min(kQ8GroupChannels, head_dim - c),
                      keys.codes + KeyOffset(slot, c, head_dim), kKeyBlockTokens);
  }
}
inline void WriteQ8Value(const float* row, size_t slot, size_t head_dim, Q8Rows values) {
  for (size_t c = 0; c < head_dim; c += kQ8GroupChannels) {
    values.scales[ScaleOffset(slot, c / kQ8GroupChannels, head_dim)] =
        EncodeQ8Group(row + c, std::min(kQ8GroupChannels, head_dim - c),
                      values.codes + ValueOffset(slot, c, head_dim), 1);
  }
}

// One element of a full tier of either type.
inline float KeyAt(const KvView& kv, size_t slot, size_t channel, size_t head_dim) {
  const size_t offset = KeyOffset(slot, channel, head_dim);
  if (kv.k != nullptr) return F16ToF32(kv.k[offset]);
  const F16 scale = kv.k8.scales[ScaleOffset(slot, channel / kQ8GroupChannels, head_dim)];
  return float(kv.k8.codes[offset]) * F16ToF32(scale);
}
inline float ValueAt(const KvView& kv, size_t slot, size_t channel, size_t head_dim) {
  const size_t offset = ValueOffset(slot, channel, head_dim);
  if (kv.v != nullptr) return F16ToF32(kv.v[offset]);
  const F16 scale = kv.v8.scales[ScaleOffset(slot, channel / kQ8GroupChannels, head_dim)];
  return float(kv.v8.codes[offset]) * F16ToF32(scale);
}

}  // namespace qevict
