#include "kernels/attend_prefill/attend_prefill.h"

#include "kernels/define_variants.h"

namespace qevict {

QEVICT_DEFINE_VARIANTS(AttendPrefill)

}  // namespace qevict
