#include "kernels/attend_codes/attend_codes.h"

namespace qevict {

#if QEVICT_HAVE_AVX512
void AttendCodesAvx512(const AttendCodesArgs&);
#endif
#if QEVICT_HAVE_AVX2
void AttendCodesAvx2(const AttendCodesArgs&);
#endif
#if QEVICT_HAVE_NEON
void AttendCodesNeon(const AttendCodesArgs&);
#endif
void AttendCodesScalar(
    const AttendCodesArgs&);  // attend_codes_scalar.cc; the others are attend_codes_simd.cc

std::span<const KernelVariant<AttendCodesFn>> AttendCodesVariants() {
  static constexpr KernelVariant<AttendCodesFn> kVariants[] = {
#if QEVICT_HAVE_AVX512
    {Isa::kAvx512, "avx512", AttendCodesAvx512},
#endif
#if QEVICT_HAVE_AVX2
    {Isa::kAvx2, "avx2", AttendCodesAvx2},
#endif
#if QEVICT_HAVE_NEON
    {Isa::kNeon, "neon", AttendCodesNeon},
#endif
    {Isa::kScalar, "scalar", AttendCodesScalar},
  };
  return kVariants;
}

}  // namespace qevict
