#include "kernels/dot_rows/dot_rows.h"

namespace qevict {

#if QEVICT_HAVE_AVX512
void DotRowsAvx512(const DotRowsArgs&);
#endif
#if QEVICT_HAVE_AVX2
void DotRowsAvx2(const DotRowsArgs&);
#endif
#if QEVICT_HAVE_NEON
void DotRowsNeon(const DotRowsArgs&);
#endif
void DotRowsScalar(const DotRowsArgs&);  // dot_rows_scalar.cc; the others: dot_rows_simd.cc

std::span<const KernelVariant<DotRowsFn>> DotRowsVariants() {
  static constexpr KernelVariant<DotRowsFn> kVariants[] = {
#if QEVICT_HAVE_AVX512
    {Isa::kAvx512, "avx512", DotRowsAvx512},
#endif
#if QEVICT_HAVE_AVX2
    {Isa::kAvx2, "avx2", DotRowsAvx2},
#endif
#if QEVICT_HAVE_NEON
    {Isa::kNeon, "neon", DotRowsNeon},
#endif
    {Isa::kScalar, "scalar", DotRowsScalar},
  };
  return kVariants;
}

}  // namespace qevict
