// Attention of one step from the quantized tier's codes, over all layers and KV heads of a model:
// one row per variant, shape and width of codes, beside the f16 kernel at the same shape. `tokens`
// is tokens per second of one KV head, the number to compare; `bytes` counts what is resident, and
// `of_read` is its share of the measured read bandwidth.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "bench/kernels/kv_heads.h"
#include "bench/kernels/machine_limits.h"
#include "kernels/attend_codes/attend_codes.h"
#include "kernels/attend_decode/attend_decode.h"

namespace qevict {
namespace {

// What the cache hands to one call.
constexpr size_t kItemTokens = 512;
constexpr size_t kOmega = 8;

struct Shape {
  const char* name;
  size_t heads;  // layers * KV heads
  size_t group, head_dim, tokens;
};

// Bytes at K3/V2; the f16 rows of the same shapes read six times as much.
constexpr Shape kShapes[] = {
    {"L1/group7/dim64/512tokens", 1, 7, 64, 512},                       // 21 KiB
    {"L2/group7/dim64/2048tokens", 1, 7, 64, 2048},                     // 84 KiB
    {"qwen2.5-0.5b/group7/dim64/32768tokens", 24 * 2, 7, 64, 32768},    // 66 MB
    {"smollm2-135m/group3/dim64/16384tokens", 30 * 3, 3, 64, 16384},    // 62 MB
    {"qwen2.5-1.5b/group6/dim128/16384tokens", 28 * 2, 6, 128, 16384},  // 75 MB
    {"gemma3-270m/group4/dim256/16384tokens", 18, 4, 256, 16384},       // 48 MB
};

enum class Extras { kNone, kBias, kBiasAndMasses };

struct Codes {
  const char* name;
  uint32_t key_bits, value_bits;
  Extras extras;
};
constexpr Codes kCodes[] = {
    {"K3V2", 3, 2, Extras::kNone},
    {"K3V2/bias", 3, 2, Extras::kBias},
    {"K3V2/bias/masses", 3, 2, Extras::kBiasAndMasses},
    {"K2V2", 2, 2, Extras::kNone},
    {"K2V2/bias/masses", 2, 2, Extras::kBiasAndMasses},
};

// Pages of many KV heads. Random codes; scales between a half and two.
class CodeHeads {
 public:
  CodeHeads(size_t heads, size_t tokens, CodeFormat format)
      : heads_(heads),
        pages_a_head_((tokens + kCodePageTokens - 1) / kCodePageTokens),
        format_(format),
        memory_(AlignedBuffer::Allocate(size_bytes()).value()) {
    uint64_t word = 88172645463325252u;  // xorshift
    auto* out = memory_.as<uint64_t>();
    for (size_t i = 0; i < size_bytes() / sizeof(uint64_t); ++i) {
      word ^= word << 13;
      word ^= word >> 7;
      word ^= word << 17;
      out[i] = word;
    }
    for (size_t i = 0; i < heads * pages_a_head_; ++i) {
      uint8_t* page = memory_.as<uint8_t>() + i * format.page_bytes();
      for (size_t t = 0; t < kCodePageTokens; ++t) {
        uint8_t& key = page[format.key_scales_offset() + t];
        uint8_t& value = page[format.value_scales_offset() + t];
        key = uint8_t(96 + key % 64);
        value = uint8_t(112 + value % 32);
      }
      pages_.push_back(page);
    }
  }
  // One set lives at a time: a shape's variants share it. Safe to call from several threads.
  static const CodeHeads& Shared(size_t heads, size_t tokens, CodeFormat format) {
    static std::mutex mutex;
    static std::unique_ptr<CodeHeads> shared;
    const std::lock_guard lock(mutex);
    const size_t pages = (tokens + kCodePageTokens - 1) / kCodePageTokens;
    if (!shared || shared->heads_ != heads || shared->pages_a_head_ != pages ||
        shared->format_ != format) {
      shared.reset();
      shared = std::make_unique<CodeHeads>(heads, tokens, format);
    }
    return *shared;
  }

  const uint8_t* const* pages(size_t head) const { return pages_.data() + head * pages_a_head_; }
  size_t size_bytes() const { return heads_ * pages_a_head_ * format_.page_bytes(); }

 private:
  size_t heads_, pages_a_head_;
  CodeFormat format_;
  AlignedBuffer memory_;
  std::vector<const uint8_t*> pages_;
};

// One thread's query, state and outputs.
struct CodeState {
  CodeState(size_t rows, size_t head_dim)
      : base(rows, head_dim),
        q(rows * head_dim),
        q_scale(rows, 1.0f / 64.0f),
        bias(rows * kItemTokens / kOmega),
        bias_of_window(kItemTokens / kOmega),
        masses(rows * kItemTokens / kOmega) {
    for (size_t i = 0; i < q.size(); ++i) {
      q[i] = int8_t(std::clamp(base.q[i] * std::sqrt(float(head_dim)) * 32.0f, -127.0f, 127.0f));
    }
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = float(i * 37 % 64) / 32.0f - 1.0f;
    for (size_t w = 0; w < bias_of_window.size(); ++w) bias_of_window[w] = uint32_t(w);
  }
  BenchState base;
  std::vector<int8_t> q;
  std::vector<float> q_scale, bias;
  std::vector<uint32_t> bias_of_window;
  std::vector<float> masses;
};

// Every thread of a step takes every threads-th item.
template <typename Item>
void ForEachItem(const benchmark::State& bench, const Shape& shape, const Item& item) {
  const size_t items = (shape.tokens + kItemTokens - 1) / kItemTokens;
  for (size_t i = size_t(bench.thread_index()); i < shape.heads * items;
       i += size_t(bench.threads())) {
    const size_t begin = i % items * kItemTokens;
    item(i / items, begin, std::min(begin + kItemTokens, shape.tokens));
    benchmark::ClobberMemory();
  }
}

void Attend(AttendCodesFn run, const Codes& codes, const Shape& shape, const uint8_t* const* pages,
            size_t begin, size_t end, CodeState& state) {
  run({.rows = shape.group,
       .format = {uint32_t(shape.head_dim), codes.key_bits, codes.value_bits},
       .q = state.q.data(),
       .q_scale = state.q_scale.data(),
       .pages = pages,
       .begin = begin,
       .end = end,
       .omega = kOmega,
       .bias = codes.extras == Extras::kNone ? nullptr : state.bias.data(),
       .bias_stride = kItemTokens / kOmega,
       .bias_of_window = state.bias_of_window.data(),
       .state = state.base.state(),
       .masses = codes.extras == Extras::kBiasAndMasses ? state.masses.data() : nullptr,
       .mass_stride = kItemTokens / kOmega});
}

void Report(benchmark::State& bench, const Shape& shape, size_t size_bytes,
            const MachineLimits& limits) {
  // A thread's share; Google Benchmark adds the shares up.
  const double bytes = double(size_bytes) / bench.threads();
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  bench.counters["tokens"] =
      benchmark::Counter(double(shape.heads * shape.tokens) / bench.threads(), rate);
  bench.counters["bytes"] = benchmark::Counter(bytes, rate);
  bench.counters["of_read"] = benchmark::Counter(bytes / limits.read_bytes_per_s, rate);
}

void BM_AttendCodes(benchmark::State& bench, AttendCodesFn run, const Codes& codes,
                    const Shape& shape, const MachineLimits& limits) {
  const CodeFormat format{uint32_t(shape.head_dim), codes.key_bits, codes.value_bits};
  const CodeHeads& heads = CodeHeads::Shared(shape.heads, shape.tokens, format);
  CodeState state(shape.group, shape.head_dim);
  for (auto _ : bench) {
    ForEachItem(bench, shape, [&](size_t head, size_t begin, size_t end) {
      ResetState(state.base.state(), shape.group, shape.head_dim);  // as the f16 kernel does
      Attend(run, codes, shape, heads.pages(head), begin, end, state);
    });
  }
  Report(bench, shape, heads.size_bytes(), limits);
}

void BM_AttendF16(benchmark::State& bench, AttendDecodeFn run, const Shape& shape,
                  const MachineLimits& limits) {
  const KvHeads& heads = KvHeads::Shared(shape.heads, shape.tokens, shape.head_dim);
  BenchState state(shape.group, shape.head_dim);
  for (auto _ : bench) {
    ForEachItem(bench, shape, [&](size_t head, size_t begin, size_t end) {
      run({.group = shape.group,
           .head_dim = shape.head_dim,
           .q = state.q.data(),
           .kv = heads.view(head),
           .begin = begin,
           .end = end,
           .state = state.state()});
    });
  }
  Report(bench, shape, heads.size_bytes(), limits);
}

// A wrong result is worth no time: ends the program before anything is measured. Scores are the
// same but for rounding; an output may differ by a weight that lies at a tie, 1/255 of the largest
// value.
void CheckAgainstScalar(const KernelVariant<AttendCodesFn>& variant, const Codes& codes,
                        const Shape& shape) {
  const CodeHeads heads(1, kItemTokens,
                        {uint32_t(shape.head_dim), codes.key_bits, codes.value_bits});
  CodeState actual(shape.group, shape.head_dim), expected(shape.group, shape.head_dim);
  Attend(variant.run, codes, shape, heads.pages(0), 0, kItemTokens, actual);
  Attend(AttendCodesVariants().back().run, codes, shape, heads.pages(0), 0, kItemTokens, expected);
  for (size_t i = 0; i < actual.base.o.size(); ++i) {
    const float a = actual.base.o[i] / actual.base.d[i / shape.head_dim];
    const float e = expected.base.o[i] / expected.base.d[i / shape.head_dim];
    if (std::abs(a - e) <= 2e-3f) continue;
    std::fprintf(stderr, "%s %s %s: channel %zu of row %zu is %g, the scalar reference says %g\n",
                 variant.name, shape.name, codes.name, i % shape.head_dim, i / shape.head_dim,
                 double(a), double(e));
    std::exit(1);
  }
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
  const auto add = [&](const std::string& name, const Shape& shape, auto run) {
    for (size_t threads : {size_t{1}, most}) {
      if (threads > 1 && shape.heads == 1) continue;
      benchmark::RegisterBenchmark(
          name.c_str(),
          [=, &machine = limits[threads - 1]](benchmark::State& bench) { run(bench, machine); })
          ->Threads(int(threads))
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
      if (most == 1) break;
    }
  };
  for (const KernelVariant<AttendCodesFn>& variant : AttendCodesVariants()) {
    if (!CpuSupports(variant.isa)) continue;
    for (const Shape& shape : kShapes) {
      // The reference takes seconds a step there.
      if (variant.isa == Isa::kScalar && shape.heads > 1) continue;
      const std::string place = std::string("/") + variant.name + "/" + shape.name;
      const AttendDecodeFn f16 = SelectVariant(AttendDecodeVariants(), variant.isa);
      add("AttendDecode" + place + "/f16", shape,
          [f16, &shape](benchmark::State& bench, const MachineLimits& machine) {
            BM_AttendF16(bench, f16, shape, machine);
          });
      for (const Codes& codes : kCodes) {
        CheckAgainstScalar(variant, codes, shape);
        add("AttendCodes" + place + "/" + codes.name, shape,
            [run = variant.run, &codes, &shape](benchmark::State& bench,
                                                const MachineLimits& machine) {
              BM_AttendCodes(bench, run, codes, shape, machine);
            });
      }
    }
  }
  benchmark::RunSpecifiedBenchmarks();
}
