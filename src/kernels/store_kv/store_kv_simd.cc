// All SIMD levels of StoreKv; compiled once per level.
#include "kernels/simd/level.h"
#include "kernels/store_kv/store_kv.h"

namespace qevict {
namespace {

HWY_INLINE void StoreHalves(const float* from, F16* to) {
  const FloatTag d;
  const FloatVec x = LoadFloats(from), limit = hn::Set(d, 65504.0f);
  const FloatVec clamped = hn::Max(hn::Min(x, limit), hn::Neg(limit));
  // Infinities and NaN stay what they are.
  const FloatVec kept = hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Inf(d)), clamped, x);
  hn::StoreU(hn::DemoteTo(HalfTag(), kept), HalfTag(), reinterpret_cast<hwy::float16_t*>(to));
}

}  // namespace

void QEVICT_AT_LEVEL(StoreKv)(const StoreKvArgs& args) {
  for (size_t t = 0; t < args.tokens; ++t) {
    const size_t slot = args.slot + t;
    F16* v_out = args.v_out + ValueOffset(slot, 0, args.head_dim);
    F16* k_out = args.k_out + KeyOffset(slot, 0, args.head_dim);
    for (size_t c = 0; c < args.head_dim; c += kKeyBlockTokens) {
      HWY_ALIGN F16 keys[kKeyBlockTokens];
      for (size_t i = 0; i < kKeyBlockTokens; i += kFloatLanes) {
        StoreHalves(args.v + t * args.v_stride + c + i, v_out + c + i);
        StoreHalves(args.k + t * args.k_stride + c + i, keys + i);
      }
      for (size_t i = 0; i < kKeyBlockTokens; ++i) k_out[(c + i) * kKeyBlockTokens] = keys[i];
    }
  }
}

}  // namespace qevict
