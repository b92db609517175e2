#include "kernels/dot_rows/dot_rows.h"

#include "kernels/define_variants.h"

namespace qevict {

QEVICT_DEFINE_VARIANTS(DotRows)

}  // namespace qevict
