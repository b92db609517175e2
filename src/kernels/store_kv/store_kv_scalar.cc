#include "kernels/q8.h"
#include "kernels/store_kv/store_kv.h"

namespace qevict {

void StoreKvScalar(const StoreKvArgs& args) {
  for (size_t t = 0; t < args.tokens; ++t) {
    const float *k = args.k + t * args.k_stride, *v = args.v + t * args.v_stride;
    const size_t slot = args.slot + t;
    if (args.k_out == nullptr) {
      WriteQ8Key(k, slot, args.head_dim, args.k8_out);
      WriteQ8Value(v, slot, args.head_dim, args.v8_out);
      continue;
    }
    for (size_t c = 0; c < args.head_dim; ++c) {
      args.k_out[KeyOffset(slot, c, args.head_dim)] = F32ToF16(k[c]);
      args.v_out[ValueOffset(slot, c, args.head_dim)] = F32ToF16(v[c]);
    }
  }
}

}  // namespace qevict
