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

constexpr size_t kGroupVectors = kQ8GroupChannels / kFloatLanes;
constexpr F16 kNanScale = 0x7e00;

// Of a group whose largest |x| is in every lane, as kernels/q8.h has it.
HWY_INLINE FloatVec Q8Scale(FloatVec largest) {
  const FloatTag d;
  const FloatVec wanted = hn::Mul(largest, hn::Set(d, 1.0f / 127.0f));
  const auto bits = hn::Add(hn::BitCast(IntTag(), wanted), hn::Set(IntTag(), 0x1fff));
  const FloatVec normal =
      hn::Min(hn::BitCast(d, hn::And(bits, hn::Set(IntTag(), ~0x1fff))), hn::Set(d, 65504.0f));
  const FloatVec subnormal =
      hn::Mul(hn::Ceil(hn::Mul(wanted, hn::Set(d, 0x1p24f))), hn::Set(d, 0x1p-24f));
  return hn::IfThenElse(hn::Lt(wanted, hn::Set(d, 0x1p-14f)), subnormal, normal);
}

// kVectors vectors of one group to codes. Returns the scale.
template <size_t kVectors>
HWY_INLINE F16 EncodeGroup(const float* from, int8_t* codes) {
  const FloatTag d;
  FloatVec x[kVectors];
  auto largest = hn::Zero(IntTag());  // |x| as bits, which order like numbers with NaN above all
  for (size_t v = 0; v < kVectors; ++v) {
    x[v] = LoadFloats(from + v * kFloatLanes);
    largest = hn::Max(largest, hn::BitCast(IntTag(), hn::Abs(x[v])));
  }
  largest = hn::MaxOfLanes(IntTag(), largest);
  if (hn::GetLane(largest) >= 0x7f800000) {
    for (size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(hn::Zero(CodeTag()), CodeTag(), codes + v * kFloatLanes);
    }
    return kNanScale;
  }
  const FloatVec scale = Q8Scale(hn::BitCast(d, largest)), limit = hn::Set(d, 127.0f);
  const FloatVec inverse =
      hn::IfThenZeroElse(hn::Eq(scale, hn::Zero(d)), hn::Div(hn::Set(d, 1.0f), scale));
  for (size_t v = 0; v < kVectors; ++v) {
    const FloatVec code = hn::Max(hn::Min(hn::Mul(x[v], inverse), limit), hn::Neg(limit));
    hn::StoreU(hn::DemoteTo(CodeTag(), hn::NearestInt(code)), CodeTag(), codes + v * kFloatLanes);
  }
  HWY_ALIGN F16 halves[kKeyBlockTokens];
  hn::StoreU(hn::DemoteTo(HalfTag(), scale), HalfTag(), reinterpret_cast<hwy::float16_t*>(halves));
  return halves[0];
}

HWY_INLINE F16 EncodeGroup(const float* from, size_t channels, int8_t* codes) {
  return channels == kQ8GroupChannels ? EncodeGroup<kGroupVectors>(from, codes)
                                      : EncodeGroup<kGroupVectors / 2>(from, codes);
}

void StoreQ8(const StoreKvArgs& args) {
  const size_t head_dim = args.head_dim;
  for (size_t t = 0; t < args.tokens; ++t) {
    const size_t slot = args.slot + t;
    for (size_t c = 0; c < head_dim; c += kQ8GroupChannels) {
      const size_t channels = head_dim - c < kQ8GroupChannels ? head_dim - c : kQ8GroupChannels;
      const size_t scale = ScaleOffset(slot, c / kQ8GroupChannels, head_dim);
      args.v8_out.scales[scale] = EncodeGroup(args.v + t * args.v_stride + c, channels,
                                              args.v8_out.codes + ValueOffset(slot, c, head_dim));
      HWY_ALIGN int8_t keys[kQ8GroupChannels];
      args.k8_out.scales[scale] = EncodeGroup(args.k + t * args.k_stride + c, channels, keys);
      int8_t* k_out = args.k8_out.codes + KeyOffset(slot, c, head_dim);
      for (size_t i = 0; i < channels; ++i) k_out[i * kKeyBlockTokens] = keys[i];
    }
  }
}

}  // namespace

void QEVICT_AT_LEVEL(StoreKv)(const StoreKvArgs& args) {
  if (args.k_out == nullptr) return StoreQ8(args);
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
