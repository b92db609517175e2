// Decode attention of one step over all layers and KV heads of a model: one row per variant, shape
// and number of threads. `of_read` is the share of the measured read bandwidth, `of_fma` that of
// the measured f32 peak (two products of group * head_dim per token; exponentials do not count).
#include <benchmark/benchmark.h>

#include <thread>

#include "bench/kernels/kv_heads.h"
#include "bench/kernels/machine_limits.h"
#include "kernels/attend_decode/attend_decode.h"

namespace qevict {
namespace {

// What the cache hands to one call.
constexpr size_t kItemTokens = 512;

struct DecodeShape {
  const char* name;
  size_t heads;  // layers * KV heads
  size_t group, head_dim, tokens;
};

constexpr DecodeShape kShapes[] = {
    {"L1/group7/dim64/64tokens", 1, 7, 64, 64},                         // 16 KiB
    {"qwen2.5-0.5b/group7/dim64/32768tokens", 24 * 2, 7, 64, 32768},    // 402 MB
    {"smollm2-135m/group3/dim64/8192tokens", 30 * 3, 3, 64, 8192},      // 189 MB
    {"qwen2.5-1.5b/group6/dim128/16384tokens", 28 * 2, 6, 128, 16384},  // 470 MB
    {"gemma3-270m/group4/dim256/16384tokens", 18, 4, 256, 16384},       // 302 MB
};

// Every thread of a step takes every threads-th item.
void Step(AttendDecodeFn run, const DecodeShape& shape, const KvHeads& heads, size_t thread,
          size_t threads, BenchState& state) {
  const size_t items = (shape.tokens + kItemTokens - 1) / kItemTokens;
  for (size_t i = thread; i < shape.heads * items; i += threads) {
    const size_t begin = i % items * kItemTokens;
    run({.group = shape.group,
         .head_dim = shape.head_dim,
         .q = state.q.data(),
         .kv = heads.view(i / items),
         .begin = begin,
         .end = std::min(begin + kItemTokens, shape.tokens),
         .state = state.state()});
    benchmark::ClobberMemory();
  }
}

void BM_AttendDecode(benchmark::State& bench, AttendDecodeFn run, const DecodeShape& shape,
                     const MachineLimits& limits) {
  const KvHeads& heads = KvHeads::Shared(shape.heads, shape.tokens, shape.head_dim);
  BenchState state(shape.group, shape.head_dim);
  for (auto _ : bench) {
    Step(run, shape, heads, size_t(bench.thread_index()), size_t(bench.threads()), state);
  }
  // A thread's share; Google Benchmark adds the shares up.
  const double bytes = double(heads.size_bytes()) / bench.threads();
  const double flops =
      double(shape.heads * shape.tokens * shape.group * shape.head_dim * 4) / bench.threads();
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  bench.counters["bytes"] = benchmark::Counter(bytes, rate);
  bench.counters["of_read"] = benchmark::Counter(bytes / limits.read_bytes_per_s, rate);
  bench.counters["of_fma"] = benchmark::Counter(flops / limits.f32_flops, rate);
}

// A wrong result is worth no time: ends the program before anything is measured.
void CheckAgainstScalar(const KernelVariant<AttendDecodeFn>& variant, const DecodeShape& shape) {
  DecodeShape small = shape;
  small.heads = 1;
  small.tokens = std::min(shape.tokens, kItemTokens);
  const KvHeads heads(1, small.tokens, small.head_dim);
  BenchState actual(small.group, small.head_dim), expected(small.group, small.head_dim);
  Step(variant.run, small, heads, 0, 1, actual);
  Step(AttendDecodeVariants().back().run, small, heads, 0, 1, expected);
  ExpectSameOutput(actual, expected, variant.name, shape.name);
}

}  // namespace
}  // namespace qevict

int main(int argc, char** argv) {
  using namespace qevict;
  benchmark::Initialize(&argc, argv);
  static std::vector<MachineLimits> limits;
  const size_t most = std::max(1u, std::thread::hardware_concurrency());
  for (size_t threads = 1; threads <= most; ++threads) {
    limits.push_back(ReportMachine(SupportedIsas().front(), threads));
  }
  for (const KernelVariant<AttendDecodeFn>& variant : AttendDecodeVariants()) {
    if (!CpuSupports(variant.isa)) continue;
    for (const DecodeShape& shape : kShapes) {
      CheckAgainstScalar(variant, shape);
      for (size_t threads : {size_t{1}, most}) {
        if (threads > 1 && shape.heads == 1) continue;
        benchmark::RegisterBenchmark(
            (std::string("AttendDecode/") + variant.name + "/" + shape.name).c_str(),
            BM_AttendDecode, variant.run, shape, limits[threads - 1])
            ->Threads(int(threads))
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
        if (most == 1) break;
      }
    }
  }
  benchmark::RunSpecifiedBenchmarks();
}
