#include "bench/kernels/machine_limits.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/aligned_buffer.h"
#include "kernels/kernel_variant.h"
#include "kernels/kv_layout.h"

namespace qevict {

#if QEVICT_HAVE_AVX512
float ReadLoopAvx512(const float*, size_t);
float FmaLoopAvx512(size_t);
#endif
#if QEVICT_HAVE_AVX2
float ReadLoopAvx2(const float*, size_t);
float FmaLoopAvx2(size_t);
#endif
#if QEVICT_HAVE_NEON
float ReadLoopNeon(const float*, size_t);
float FmaLoopNeon(size_t);
#endif

namespace {

using ReadLoopFn = float (*)(const float*, size_t);
using FmaLoopFn = float (*)(size_t);

struct Loops {
  Isa isa;
  ReadLoopFn read;
  FmaLoopFn fma;
};

constexpr Loops kLoops[] = {
#if QEVICT_HAVE_AVX512
    {Isa::kAvx512, ReadLoopAvx512, FmaLoopAvx512},
#endif
#if QEVICT_HAVE_AVX2
    {Isa::kAvx2, ReadLoopAvx2, FmaLoopAvx2},
#endif
#if QEVICT_HAVE_NEON
    {Isa::kNeon, ReadLoopNeon, FmaLoopNeon},
#endif
};

const Loops& LoopsOf(Isa isa) {
  for (const Loops& loops : kLoops) {
    if (CpuSupports(loops.isa) && (loops.isa <= isa || isa == Isa::kScalar)) return loops;
  }
  QEVICT_CHECK(!"a machine without any SIMD level has no limits to report");
  return kLoops[0];
}

// Seconds until all threads have finished `run`, the best of five turns.
double BestSeconds(size_t threads, const std::function<void(size_t thread)>& run) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30;
  for (int turn = 0; turn < 5; ++turn) {
    std::vector<std::thread> pool;
    std::atomic<bool> go = false;
    for (size_t t = 0; t < threads; ++t) {
      pool.emplace_back([&, t] {
        while (!go) std::this_thread::yield();
        run(t);
      });
    }
    const auto start = Clock::now();
    go = true;
    for (std::thread& thread : pool) thread.join();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

}  // namespace

MachineLimits MeasureMachine(Isa isa, size_t threads) {
  const Loops& loops = LoopsOf(isa);
  const size_t floats = (size_t{512} << 20) / sizeof(float) / threads / 128 * 128;
  const AlignedBuffer memory = AlignedBuffer::Allocate(floats * threads * sizeof(float)).value();
  std::fill_n(memory.as<float>(), floats * threads, 1.0f);
  const double read_s = BestSeconds(threads, [&](size_t thread) {
    benchmark::DoNotOptimize(loops.read(memory.as<float>() + thread * floats, floats));
  });
  constexpr size_t kIterations = 20'000'000;
  const double fma_s =
      BestSeconds(threads, [&](size_t) { benchmark::DoNotOptimize(loops.fma(kIterations)); });
  return {double(floats * threads * sizeof(float)) / read_s,
          double(threads) * kIterations * 2 * 12 * kKeyBlockTokens / fma_s};
}

MachineLimits ReportMachine(Isa isa, size_t threads) {
  const MachineLimits limits = MeasureMachine(isa, threads);
  char text[100];
  std::snprintf(text, sizeof(text), "%.1f GB/s read, %.1f GFLOP/s f32 (%s)",
                limits.read_bytes_per_s / 1e9, limits.f32_flops / 1e9,
                std::string(IsaName(LoopsOf(isa).isa)).c_str());
  benchmark::AddCustomContext("limits with " + std::to_string(threads) + " threads", text);
  return limits;
}

}  // namespace qevict
