// Inputs and states of the attention kernels' tests, and how far apart two results may be.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/isa.h"
#include "kernels/attention_state/attention_state.h"
#include "kernels/f16.h"
#include "kernels/kernel_variant.h"
#include "kernels/kv_layout.h"
#include "kernels/q8.h"

namespace qevict {

// K and V of one KV head. Slots past the last written one are zero up to the end of their block, as
// a cache leaves them.
class KvCase {
 public:
  KvCase(size_t slots, size_t head_dim) : slots_(slots), head_dim_(head_dim) {
    const size_t blocks = (slots + kKeyBlockTokens - 1) / kKeyBlockTokens;
    const size_t bytes = blocks * kKeyBlockTokens * head_dim * sizeof(F16);
    k_ = AlignedBuffer::Allocate(bytes).value();
    v_ = AlignedBuffer::Allocate(bytes).value();
  }
  static KvCase Random(size_t slots, size_t head_dim, uint32_t seed) {
    KvCase kv(slots, head_dim);
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    for (size_t t = 0; t < slots; ++t) {
      for (size_t c = 0; c < head_dim; ++c) {
        kv.SetKey(t, c, normal(rng));
        kv.SetValue(t, c, normal(rng));
      }
    }
    return kv;
  }
  // The same tokens as int8, or as f16.
  KvCase As(KvType type) const {
    KvCase kv(slots_, head_dim_);
    kv.type_ = type;
    const auto allocate = [&](size_t bytes) {
      const size_t blocks = (slots_ + kKeyBlockTokens - 1) / kKeyBlockTokens;
      return AlignedBuffer::Allocate(blocks * kKeyBlockTokens * bytes).value();
    };
    for (AlignedBuffer* codes : {&kv.k_codes_, &kv.v_codes_}) *codes = allocate(head_dim_);
    for (AlignedBuffer* scales : {&kv.k_scales_, &kv.v_scales_}) {
      *scales = allocate(Q8Groups(head_dim_) * sizeof(F16));
    }
    std::vector<float> key(head_dim_), value(head_dim_);
    for (size_t t = 0; t < slots_; ++t) {
      for (size_t c = 0; c < head_dim_; ++c) {
        kv.SetKey(t, c, key[c] = Key(t, c));
        kv.SetValue(t, c, value[c] = Value(t, c));
      }
      WriteQ8Key(key.data(), t, head_dim_, {kv.k_codes_.as<int8_t>(), kv.k_scales_.as<F16>()});
      WriteQ8Value(value.data(), t, head_dim_, {kv.v_codes_.as<int8_t>(), kv.v_scales_.as<F16>()});
    }
    return kv;
  }
  void SetKey(size_t slot, size_t channel, float x) {
    k_.as<F16>()[KeyOffset(slot, channel, head_dim_)] = F32ToF16(x);
  }
  void SetValue(size_t slot, size_t channel, float x) {
    v_.as<F16>()[ValueOffset(slot, channel, head_dim_)] = F32ToF16(x);
  }
  float Key(size_t slot, size_t channel) const { return KeyAt(view(), slot, channel, head_dim_); }
  float Value(size_t slot, size_t channel) const {
    return ValueAt(view(), slot, channel, head_dim_);
  }
  KvView view() const {
    if (type_ == KvType::kF16) return {.k = k_.as<F16>(), .v = v_.as<F16>(), .slots = slots_};
    return {.slots = slots_,
            .k8 = {k_codes_.as<int8_t>(), k_scales_.as<F16>()},
            .v8 = {v_codes_.as<int8_t>(), v_scales_.as<F16>()}};
  }
  size_t slots() const { return slots_; }
  size_t head_dim() const { return head_dim_; }

 private:
  KvType type_ = KvType::kF16;
  size_t slots_, head_dim_;
  AlignedBuffer k_, v_, k_codes_, k_scales_, v_codes_, v_scales_;
};

// Queries as a model has them: scaled, so that scores of normally distributed keys have a deviation
// of `spread`.
inline std::vector<float> RandomQueries(size_t rows, size_t head_dim, uint32_t seed,
                                        float spread = 1.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> q(rows * head_dim);
  for (float& x : q) x = normal(rng) * spread / std::sqrt(float(head_dim));
  return q;
}

struct StateCase {
  StateCase(size_t row_count, size_t channels)
      : rows(row_count), head_dim(channels), m(row_count), d(row_count), o(row_count * channels) {
    ResetState(state(), rows, head_dim);
  }
  AttentionState state() { return {m.data(), d.data(), o.data()}; }
  size_t rows, head_dim;
  std::vector<float> m, d, o;
};

// Rounding units of the products that attention is made of: of f32, or of bf16, to which queries,
// keys minus a key that is an average of others, weights and values are rounded before.
enum class ProductsIn { kF32, kBf16 };

// Largest difference of two computations of one score: each is an f32 sum of head_dim products, in
// any order, so each is off by at most head_dim rounding units (2^-24) of the sum of |q k|.
// Products with int8 keys round once more, for the scale; their sums run over groups, which takes
// less. In bf16 both factors of a product are off by 2^-9 besides; an average of keys is in each
// channel at most the largest.
inline float ScoreTolerance(const float* q, const KvCase& kv,
                            ProductsIn products = ProductsIn::kF32) {
  std::vector<float> largest_key(kv.head_dim(), 0.0f);
  for (size_t t = 0; t < kv.slots(); ++t) {
    for (size_t c = 0; c < kv.head_dim(); ++c)
      largest_key[c] = std::max(largest_key[c], std::abs(kv.Key(t, c)));
  }
  const bool bf16 = products == ProductsIn::kBf16;
  float largest = 0.0f;
  for (size_t t = 0; t < kv.slots(); ++t) {
    float sum = 0.0f;
    for (size_t c = 0; c < kv.head_dim(); ++c)
      sum += std::abs(q[c]) * (std::abs(kv.Key(t, c)) + (bf16 ? largest_key[c] : 0.0f));
    largest = std::max(largest, sum);
  }
  return (2.0f * float(kv.head_dim()) * 0x1p-24f + (bf16 ? 0x1.02p-8f : 0.0f)) * largest;
}

// Compares what attention means: the state's logarithm m + log d and its output o / d.
// With scores off by e, a weight is off by the factor exp(+-e), by 4e-7 from the exponential, and a
// sum over `tokens` by `tokens` rounding units; numerator and denominator both, and the result is
// at most the largest |v|. In bf16 weights and values of the numerator are off by 2^-9 each.
inline void ExpectSameAttention(StateCase& actual, StateCase& expected, const float* q,
                                const KvCase& kv, ProductsIn products = ProductsIn::kF32) {
  float largest_v = 0.0f;
  for (size_t t = 0; t < kv.slots(); ++t) {
    for (size_t c = 0; c < kv.head_dim(); ++c)
      largest_v = std::max(largest_v, std::abs(kv.Value(t, c)));
  }
  const size_t head_dim = kv.head_dim();
  for (size_t r = 0; r < expected.rows; ++r) {
    if (expected.d[r] == 0.0f) {
      EXPECT_EQ(actual.d[r], 0.0f) << "row " << r;
      EXPECT_EQ(actual.m[r], -std::numeric_limits<float>::infinity()) << "row " << r;
      for (size_t c = 0; c < head_dim; ++c)
        ASSERT_EQ(actual.o[r * head_dim + c], 0.0f) << "row " << r;
      continue;
    }
    const float score = ScoreTolerance(q + r * head_dim, kv, products);
    const float weight = std::expm1(score) + 4e-7f + float(kv.slots()) * 0x1p-24f;
    ASSERT_NEAR(actual.m[r], expected.m[r], score) << "row " << r;
    const float lse = expected.m[r] + std::log(expected.d[r]);
    ASSERT_NEAR(actual.m[r] + std::log(actual.d[r]), lse, score + weight + std::abs(lse) * 0x1p-22f)
        << "row " << r;
    for (size_t c = 0; c < head_dim; ++c) {
      ASSERT_NEAR(actual.o[r * head_dim + c] / actual.d[r],
                  expected.o[r * head_dim + c] / expected.d[r],
                  (2.0f * weight + (products == ProductsIn::kBf16 ? 0x1.02p-8f : 0.0f)) * largest_v)
          << "row " << r << " channel " << c;
    }
  }
}

// A level that this CPU lacks is skipped visibly.
#define QEVICT_SKIP_WITHOUT(variant) \
  if (!CpuSupports((variant).isa)) GTEST_SKIP() << "this CPU has no " << (variant).name

// GoogleTest would print the bytes of the function's address.
template <typename Fn>
void PrintTo(const KernelVariant<Fn>& variant, std::ostream* out) {
  *out << variant.name;
}

template <typename Variant>
std::string VariantName(const ::testing::TestParamInfo<Variant>& tested) {
  return tested.param.name;
}

}  // namespace qevict
