#include "kernels/store_kv/store_kv.h"

namespace qevict {

#if QEVICT_HAVE_AVX512
void StoreKvAvx512(const StoreKvArgs&);
#endif
#if QEVICT_HAVE_AVX2
void StoreKvAvx2(const StoreKvArgs&);
#endif
#if QEVICT_HAVE_NEON
void StoreKvNeon(const StoreKvArgs&);
#endif
void StoreKvScalar(const StoreKvArgs&);  // store_kv_scalar.cc; the others are store_kv_simd.cc

std::span<const KernelVariant<StoreKvFn>> StoreKvVariants() {
  static constexpr KernelVariant<StoreKvFn> kVariants[] = {
#if QEVICT_HAVE_AVX512
    {Isa::kAvx512, "avx512", StoreKvAvx512},
#endif
#if QEVICT_HAVE_AVX2
    {Isa::kAvx2, "avx2", StoreKvAvx2},
#endif
#if QEVICT_HAVE_NEON
    {Isa::kNeon, "neon", StoreKvNeon},
#endif
    {Isa::kScalar, "scalar", StoreKvScalar},
  };
  return kVariants;
}

}  // namespace qevict
