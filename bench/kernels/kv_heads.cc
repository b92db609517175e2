#include "bench/kernels/kv_heads.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>

namespace qevict {

KvHeads::KvHeads(size_t heads, size_t tokens, size_t head_dim, KvType type)
    : type_(type),
      heads_(heads),
      tokens_(tokens),
      head_dim_(head_dim),
      memory_(AlignedBuffer::Allocate(size_bytes()).value()) {
  uint64_t word = 88172645463325252u;  // xorshift: hundreds of megabytes in a fraction of a second
  auto* out = memory_.as<uint64_t>();
  for (size_t i = 0; i < size_bytes() / sizeof(uint64_t); ++i) {
    word ^= word << 13;
    word ^= word >> 7;
    word ^= word << 17;
    // f16 exponents up to 15: finite and below 2.
    out[i] = type == KvType::kF16 ? word & 0xbfffbfffbfffbfffu : word;
  }
  for (size_t part = 0; type == KvType::kQ8 && part < 2 * heads; ++part) {
    F16* scales = Q8Part(part).scales;
    for (size_t i = 0; i < tokens * Q8Groups(head_dim); ++i) {
      scales[i] = F16(0x2000 | (scales[i] & 0x3ff));  // 2^-7 to 2^-6
    }
  }
}

Q8Rows KvHeads::Q8Part(size_t part) const {
  uint8_t* base = memory_.as<uint8_t>() + part * part_bytes();
  return {reinterpret_cast<int8_t*>(base), reinterpret_cast<F16*>(base + tokens_ * head_dim_)};
}

const KvHeads& KvHeads::Shared(size_t heads, size_t tokens, size_t head_dim, KvType type) {
  static std::unique_ptr<KvHeads> shared;
  if (!shared || shared->heads_ != heads || shared->tokens_ != tokens ||
      shared->head_dim_ != head_dim || shared->type_ != type) {
    shared.reset();
    shared = std::make_unique<KvHeads>(heads, tokens, head_dim, type);
  }
  return *shared;
}

KvView KvHeads::view(size_t head) const {
  if (type_ == KvType::kQ8) {
    const Q8Rows k = Q8Part(2 * head), v = Q8Part(2 * head + 1);
    return {.slots = tokens_, .k8 = {k.codes, k.scales}, .v8 = {v.codes, v.scales}};
  }
  const F16* k = memory_.as<F16>() + head * 2 * tokens_ * head_dim_;
  return {.k = k, .v = k + tokens_ * head_dim_, .slots = tokens_};
}

BenchState::BenchState(size_t rows, size_t head_dim)
    : q(rows * head_dim), m(rows), d(rows), o(rows * head_dim) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  for (float& x : q) x = normal(rng) / std::sqrt(float(head_dim));
  ResetState(state(), rows, head_dim);
}

void ExpectSameOutput(BenchState& actual, BenchState& expected, const char* variant,
                      const char* shape, float tolerance) {
  const size_t rows = actual.d.size(), head_dim = actual.o.size() / rows;
  for (size_t i = 0; i < actual.o.size(); ++i) {
    const float a = actual.o[i] / actual.d[i / head_dim];
    const float e = expected.o[i] / expected.d[i / head_dim];
    if (std::abs(a - e) <= tolerance) continue;
    std::fprintf(stderr, "%s %s: channel %zu of row %zu is %g, the scalar reference says %g\n",
                 variant, shape, i % head_dim, i / head_dim, double(a), double(e));
    std::exit(1);
  }
}

}  // namespace qevict
