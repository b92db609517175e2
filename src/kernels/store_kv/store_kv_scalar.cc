#include "kernels/f16.h"
#include "kernels/store_kv/store_kv.h"

namespace qevict {

void StoreKvScalar(const StoreKvArgs& args) {
  for (size_t t = 0; t < args.tokens; ++t) {
    for (size_t c = 0; c < args.head_dim; ++c) {
      args.k_out[KeyOffset(args.slot + t, c, args.head_dim)] =
          F32ToF16(args.k[t * args.k_stride + c]);
      args.v_out[ValueOffset(args.slot + t, c, args.head_dim)] =
          F32ToF16(args.v[t * args.v_stride + c]);
    }
  }
}

}  // namespace qevict
