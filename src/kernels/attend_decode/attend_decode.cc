#include "kernels/attend_decode/attend_decode.h"

namespace qevict {

#if QEVICT_HAVE_AVX512
void AttendDecodeAvx512(const AttendDecodeArgs&);
#endif
#if QEVICT_HAVE_AVX2
void AttendDecodeAvx2(const AttendDecodeArgs&);
#endif
#if QEVICT_HAVE_NEON
void AttendDecodeNeon(const AttendDecodeArgs&);
#endif
void AttendDecodeScalar(
    const AttendDecodeArgs&);  // attend_decode_scalar.cc; the others are attend_decode_simd.cc

std::span<const KernelVariant<AttendDecodeFn>> AttendDecodeVariants() {
  static constexpr KernelVariant<AttendDecodeFn> kVariants[] = {
#if QEVICT_HAVE_AVX512
    {Isa::kAvx512, "avx512", AttendDecodeAvx512},
#endif
#if QEVICT_HAVE_AVX2
    {Isa::kAvx2, "avx2", AttendDecodeAvx2},
#endif
#if QEVICT_HAVE_NEON
    {Isa::kNeon, "neon", AttendDecodeNeon},
#endif
    {Isa::kScalar, "scalar", AttendDecodeScalar},
  };
  return kVariants;
}

}  // namespace qevict
