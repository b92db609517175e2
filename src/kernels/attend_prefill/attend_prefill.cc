#include "kernels/attend_prefill/attend_prefill.h"

namespace qevict {

#if QEVICT_HAVE_AVX512
void AttendPrefillAvx512(const AttendPrefillArgs&);
#endif
#if QEVICT_HAVE_AVX2
void AttendPrefillAvx2(const AttendPrefillArgs&);
#endif
#if QEVICT_HAVE_NEON
void AttendPrefillNeon(const AttendPrefillArgs&);
#endif
void AttendPrefillScalar(
    const AttendPrefillArgs&);  // attend_prefill_scalar.cc; the others are attend_prefill_simd.cc

std::span<const KernelVariant<AttendPrefillFn>> AttendPrefillVariants() {
  static constexpr KernelVariant<AttendPrefillFn> kVariants[] = {
#if QEVICT_HAVE_AVX512
    {Isa::kAvx512, "avx512", AttendPrefillAvx512},
#endif
#if QEVICT_HAVE_AVX2
    {Isa::kAvx2, "avx2", AttendPrefillAvx2},
#endif
#if QEVICT_HAVE_NEON
    {Isa::kNeon, "neon", AttendPrefillNeon},
#endif
    {Isa::kScalar, "scalar", AttendPrefillScalar},
  };
  return kVariants;
}

}  // namespace qevict
