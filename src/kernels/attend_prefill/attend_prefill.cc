#include "kernels/attend_prefill/attend_prefill.h"

namespace qevict {

void AttendPrefillScalar(const AttendPrefillArgs&);  // attend_prefill_scalar.cc

std::span<const KernelVariant<AttendPrefillFn>> AttendPrefillVariants() {
  static constexpr KernelVariant<AttendPrefillFn> kVariants[] = {
      {Isa::kScalar, "scalar", AttendPrefillScalar},
  };
  return kVariants;
}

}  // namespace qevict
