// Writing the keys and values of new tokens of one KV head: one token as in a decode step, and many
// as in prefill. `bytes` are those read and written.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>

#include "bench/kernels/kv_heads.h"
#include "bench/kernels/register_variants.h"
#include "kernels/store_kv/store_kv.h"

namespace qevict {
namespace {

struct StoreShape {
  const char* name;
  size_t tokens, head_dim, slot;
};

constexpr StoreShape kShapes[] = {
    {"L1/1token/dim64", 1, 64, 7},
    {"L1/16tokens/dim64", 16, 64, 0},
    {"2048tokens/dim64", 2048, 64, 0},
    {"2048tokens/dim128", 2048, 128, 0},
    {"past_L3/131072tokens/dim64", 131072, 64, 0},  // 67 MB read, 34 MB written
};

struct StoreBlock {
  explicit StoreBlock(const StoreShape& shape)
      : input(2 * shape.tokens, shape.head_dim),
        heads(1, (shape.slot + shape.tokens + kKeyBlockTokens) / kKeyBlockTokens * kKeyBlockTokens,
              shape.head_dim) {
    const size_t floats = shape.tokens * shape.head_dim;
    args = {.tokens = shape.tokens,
            .head_dim = shape.head_dim,
            .k = input.q.data(),
            .v = input.q.data() + floats,
            .k_stride = shape.head_dim,
            .v_stride = shape.head_dim,
            .k_out = const_cast<F16*>(heads.view(0).k),
            .v_out = const_cast<F16*>(heads.view(0).v),
            .slot = shape.slot};
  }
  BenchState input;
  KvHeads heads;
  StoreKvArgs args;
};

void BM_StoreKv(benchmark::State& bench, StoreKvFn run, const StoreShape& shape) {
  StoreBlock block(shape);
  for (auto _ : bench) {
    run(block.args);
    benchmark::ClobberMemory();
  }
  const double bytes = double(2 * shape.tokens * shape.head_dim * (sizeof(float) + sizeof(F16)));
  bench.counters["bytes"] =
      benchmark::Counter(bytes, benchmark::Counter::kIsIterationInvariantRate);
}

// A wrong result is worth no time: ends the program before anything is measured.
void CheckAgainstScalar(const KernelVariant<StoreKvFn>& variant, const StoreShape& shape) {
  StoreShape small = shape;
  small.tokens = std::min<size_t>(shape.tokens, 256);
  const StoreBlock actual(small), expected(small);
  variant.run(actual.args);
  StoreKvVariants().back().run(expected.args);
  if (std::memcmp(actual.heads.view(0).k, expected.heads.view(0).k, actual.heads.size_bytes()) !=
      0) {
    std::fprintf(stderr, "%s %s: not the bits of the scalar reference\n", variant.name, shape.name);
    std::exit(1);
  }
}

}  // namespace
}  // namespace qevict

int main(int argc, char** argv) {
  using namespace qevict;
  benchmark::Initialize(&argc, argv);
  RegisterVariants("StoreKv", StoreKvVariants(), kShapes, CheckAgainstScalar, BM_StoreKv);
  benchmark::RunSpecifiedBenchmarks();
}
