#include "kernels/store_kv/store_kv.h"

namespace qevict {

void StoreKvScalar(const StoreKvArgs&);  // store_kv_scalar.cc

std::span<const KernelVariant<StoreKvFn>> StoreKvVariants() {
  static constexpr KernelVariant<StoreKvFn> kVariants[] = {
      {Isa::kScalar, "scalar", StoreKvScalar},
  };
  return kVariants;
}

}  // namespace qevict
