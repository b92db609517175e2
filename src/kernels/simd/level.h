// What a kernel source needs to be compiled once per SIMD level (cmake/QevictSimdLevels.cmake):
// Highway's vector types at the level that the compiler flags state, and the name of the level's
// entry function. Include only from *_simd.cc. Everything in this folder is in an anonymous
// namespace: two levels must share no symbol.
#pragma once

#ifndef QEVICT_LEVEL
#error "compile this through qevict_simd_kernels()"
#endif

#define HWY_COMPILE_ONLY_STATIC
#include <hwy/highway.h>

#include "kernels/kv_layout.h"

#define QEVICT_CONCAT_INNER(a, b) a##b
#define QEVICT_CONCAT(a, b) QEVICT_CONCAT_INNER(a, b)
// QEVICT_AT_LEVEL(AttendDecode) is AttendDecodeAvx2 in the object of the AVX2 level.
#define QEVICT_AT_LEVEL(name) QEVICT_CONCAT(name, QEVICT_LEVEL)

namespace qevict {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, kKeyBlockTokens>;
using FloatVec = hn::Vec<FloatTag>;
using HalfTag = hn::Rebind<hwy::float16_t, FloatTag>;
using IntTag = hn::Rebind<int32_t, FloatTag>;
using CodeTag = hn::Rebind<int8_t, FloatTag>;

inline constexpr size_t kFloatLanes = hn::MaxLanes(FloatTag());
// Vectors in one block of 16 columns: 1 (AVX-512), 2 (AVX2), 4 (NEON).
inline constexpr size_t kBlockVectors = kKeyBlockTokens / kFloatLanes;

HWY_INLINE FloatVec LoadFloats(const float* from) { return hn::LoadU(FloatTag(), from); }
HWY_INLINE FloatVec LoadFloats(const F16* from) {
  return hn::PromoteTo(FloatTag(),
                       hn::LoadU(HalfTag(), reinterpret_cast<const hwy::float16_t*>(from)));
}
HWY_INLINE FloatVec LoadFloats(const int8_t* from) {
  return hn::ConvertTo(FloatTag(), hn::PromoteTo(IntTag(), hn::LoadU(CodeTag(), from)));
}
HWY_INLINE void StoreFloats(FloatVec v, float* to) { hn::StoreU(v, FloatTag(), to); }

inline constexpr size_t kCacheLineBytes = 64;

// Into L2, not L1: L1 holds the tile that is being worked on.
HWY_INLINE void PrefetchLine(const void* line) {
  __builtin_prefetch(line, /*read*/ 0, /*locality*/ 2);
}

}  // namespace
}  // namespace qevict
