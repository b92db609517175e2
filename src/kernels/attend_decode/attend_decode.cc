#include "kernels/attend_decode/attend_decode.h"

namespace qevict {

void AttendDecodeScalar(const AttendDecodeArgs&);  // attend_decode_scalar.cc

std::span<const KernelVariant<AttendDecodeFn>> AttendDecodeVariants() {
  static constexpr KernelVariant<AttendDecodeFn> kVariants[] = {
      {Isa::kScalar, "scalar", AttendDecodeScalar},
  };
  return kVariants;
}

}  // namespace qevict
