// QEVICT_DEFINE_VARIANTS(AttendDecode) declares the kernel's entry functions AttendDecodeAvx512 and
// so on, one per level that this build has (attend_decode_simd.cc, attend_decode_scalar.cc), and
// defines the list of them, AttendDecodeVariants(). For a kernel's own .cc, in namespace qevict.
#pragma once

#include "kernels/kernel_variant.h"

#if QEVICT_HAVE_AVX512
#define QEVICT_IF_AVX512(...) __VA_ARGS__
#else
#define QEVICT_IF_AVX512(...)
#endif
#if QEVICT_HAVE_AVX2
#define QEVICT_IF_AVX2(...) __VA_ARGS__
#else
#define QEVICT_IF_AVX2(...)
#endif
#if QEVICT_HAVE_NEON
#define QEVICT_IF_NEON(...) __VA_ARGS__
#else
#define QEVICT_IF_NEON(...)
#endif

// clang-format off
#define QEVICT_DEFINE_VARIANTS(name)                                 \
  QEVICT_IF_AVX512(void name##Avx512(const name##Args&);)            \
  QEVICT_IF_AVX2(void name##Avx2(const name##Args&);)                \
  QEVICT_IF_NEON(void name##Neon(const name##Args&);)                \
  void name##Scalar(const name##Args&);                              \
  std::span<const KernelVariant<name##Fn>> name##Variants() {        \
    static constexpr KernelVariant<name##Fn> kVariants[] = {         \
        QEVICT_IF_AVX512({Isa::kAvx512, "avx512", name##Avx512}, )   \
        QEVICT_IF_AVX2({Isa::kAvx2, "avx2", name##Avx2}, )           \
        QEVICT_IF_NEON({Isa::kNeon, "neon", name##Neon}, )           \
        {Isa::kScalar, "scalar", name##Scalar}};                     \
    return kVariants;                                                \
  }
// clang-format on
