#include "kernels/store_kv/store_kv.h"

#include "kernels/define_variants.h"

namespace qevict {

QEVICT_DEFINE_VARIANTS(StoreKv)

}  // namespace qevict
