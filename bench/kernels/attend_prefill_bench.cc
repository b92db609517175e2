// Prefill attention of one block of query rows over a long range of keys, all of which every row
// sees, and over the causal tile at its end. `of_fma` is the share of the measured f32 peak of one
// thread (two products per visible pair of row and key; exponentials and conversions do not count).
#include <benchmark/benchmark.h>

#include <string>

#include "bench/kernels/kv_heads.h"
#include "bench/kernels/machine_limits.h"
#include "bench/kernels/register_variants.h"
#include "kernels/attend_prefill/attend_prefill.h"

namespace qevict {
namespace {

enum class Mask { kNone, kCausal };

struct PrefillShape {
  const char* name;
  size_t rows, head_dim, tokens;
  Mask mask;
};

constexpr PrefillShape kShapes[] = {
    {"L1/rows126/dim64/16keys", 126, 64, 16, Mask::kNone},
    {"rows126/dim64/4096keys", 126, 64, 4096, Mask::kNone},
    {"rows128/dim128/4096keys", 128, 128, 4096, Mask::kNone},
    {"rows128/dim256/4096keys", 128, 256, 4096, Mask::kNone},
    {"rows126/dim64/causal128keys", 126, 64, 128, Mask::kCausal},
    {"past_L3/rows126/dim64/262144keys", 126, 64, 262144, Mask::kNone},  // 67 MB
};

struct PrefillBlock {
  PrefillBlock(const PrefillShape& shape, const KvHeads& heads)
      : state(shape.rows, shape.head_dim),
        begin(shape.rows, 0),
        end(shape.rows, uint32_t(shape.tokens)),
        scratch(
            AlignedBuffer::Allocate(PrefillScratchFloats(shape.head_dim) * sizeof(float)).value()),
        args{.rows = shape.rows,
             .head_dim = shape.head_dim,
             .q = state.q.data(),
             .kv = heads.view(0),
             .begin = 0,
             .end = shape.tokens,
             .row_begin = begin.data(),
             .row_end = end.data(),
             .state = state.state(),
             .bf16 = true,
             .scratch = scratch.as<float>()} {
    for (size_t r = 0; r < shape.rows; ++r) {
      if (shape.mask == Mask::kCausal) end[r] = uint32_t(r + 1);
      pairs += end[r];
    }
  }
  BenchState state;
  std::vector<uint32_t> begin, end;
  AlignedBuffer scratch;
  AttendPrefillArgs args;
  size_t pairs = 0;
};

void BM_AttendPrefill(benchmark::State& bench, AttendPrefillFn run, const PrefillShape& shape,
                      const MachineLimits& limits) {
  const KvHeads& heads = KvHeads::Shared(1, shape.tokens, shape.head_dim, KvType::kF16);
  PrefillBlock block(shape, heads);
  for (auto _ : bench) {
    run(block.args);
    benchmark::ClobberMemory();
  }
  const double flops = double(4 * block.pairs * shape.head_dim);
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  bench.counters["bytes"] = benchmark::Counter(double(heads.size_bytes()), rate);
  bench.counters["flops"] = benchmark::Counter(flops, rate);
  bench.counters["of_fma"] = benchmark::Counter(flops / limits.f32_flops, rate);
}

// A wrong result is worth no time: ends the program before anything is measured.
void CheckAgainstScalar(const KernelVariant<AttendPrefillFn>& variant, const PrefillShape& shape) {
  PrefillShape small = shape;
  small.tokens = std::min<size_t>(shape.tokens, 256);
  const KvHeads heads(1, small.tokens, small.head_dim);
  PrefillBlock actual(small, heads), expected(small, heads);
  variant.run(actual.args);
  AttendPrefillVariants().back().run(expected.args);
  // avx512 multiplies in bf16, values of a standard deviation of 1.
  const float tolerance = variant.isa == Isa::kAvx512 ? 0x1p-6f : 1e-4f;
  ExpectSameOutput(actual.state, expected.state, variant.name, shape.name, tolerance);
}

}  // namespace
}  // namespace qevict

int main(int argc, char** argv) {
  using namespace qevict;
  benchmark::Initialize(&argc, argv);
  const MachineLimits limits = ReportMachine(SupportedIsas().front(), 1);
  RegisterVariants("AttendPrefill", AttendPrefillVariants(), kShapes, CheckAgainstScalar,
                   BM_AttendPrefill, limits);
  benchmark::RunSpecifiedBenchmarks();
}
