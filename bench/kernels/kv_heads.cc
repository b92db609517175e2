#include "bench/kernels/kv_heads.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>

namespace qevict {

KvHeads::KvHeads(size_t heads, size_t tokens, size_t head_dim)
    : heads_(heads),
      tokens_(tokens),
      head_dim_(head_dim),
      memory_(AlignedBuffer::Allocate(size_bytes()).value()) {
  uint64_t word = 88172645463325252u;  // xorshift: hundreds of megabytes in a fraction of a second
  auto* out = memory_.as<uint64_t>();
  for (size_t i = 0; i < size_bytes() / sizeof(uint64_t); ++i) {
    word ^= word << 13;
    word ^= word >> 7;
    word ^= word << 17;
    out[i] = word & 0xbfffbfffbfffbfffu;  // exponents up to 15: finite and below 2
  }
}

const KvHeads& KvHeads::Shared(size_t heads, size_t tokens, size_t head_dim) {
  static std::unique_ptr<KvHeads> shared;
  if (!shared || shared->heads_ != heads || shared->tokens_ != tokens ||
      shared->head_dim_ != head_dim) {
    shared.reset();
    shared = std::make_unique<KvHeads>(heads, tokens, head_dim);
  }
  return *shared;
}

KvView KvHeads::view(size_t head) const {
  const F16* k = memory_.as<F16>() + head * 2 * tokens_ * head_dim_;
  return {k, k + tokens_ * head_dim_, tokens_};
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
