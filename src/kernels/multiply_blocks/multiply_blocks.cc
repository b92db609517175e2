#include "kernels/multiply_blocks/multiply_blocks.h"

#include "kernels/define_variants.h"

namespace qevict {

QEVICT_DEFINE_VARIANTS(MultiplyBlocks)

}  // namespace qevict
