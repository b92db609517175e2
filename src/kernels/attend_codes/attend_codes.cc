#include "kernels/attend_codes/attend_codes.h"

#include "kernels/define_variants.h"

namespace qevict {

QEVICT_DEFINE_VARIANTS(AttendCodes)

}  // namespace qevict
