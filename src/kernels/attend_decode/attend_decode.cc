#include "kernels/attend_decode/attend_decode.h"

#include "kernels/define_variants.h"

namespace qevict {

QEVICT_DEFINE_VARIANTS(AttendDecode)

}  // namespace qevict
