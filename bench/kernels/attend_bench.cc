// Attention of one decode step over all layers and KV heads of a model, from a full tier in f16 and
// in q8 and from the quantized tier's codes: one row per variant, shape and format. `tokens` is
// tokens per second of one KV head, the number to compare; `bytes` counts what is resident;
// `of_read` is its share of the measured read bandwidth, `of_fma` that of the measured f32 peak
// (f16 rows: two products of group * head_dim per token; exponentials do not count).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "bench/kernels/kv_heads.h"
#include "bench/kernels/machine_limits.h"
#include "bench/kernels/step_threads.h"
#include "cache/decode_split.h"
#include "kernels/attend_codes/attend_codes.h"
#include "kernels/attend_decode/attend_decode.h"

namespace qevict {
namespace {

constexpr size_t kOmega = 8;

struct Shape {
  const char* name;
  size_t heads;  // layers * KV heads
  size_t group, head_dim, tokens;
};

// Bytes of f16, then at K3/V2.
constexpr Shape kShapes[] = {
    {"L1/group7/dim64/64tokens", 1, 7, 64, 64},                         // 16 KiB, 3 KiB
    {"L1/group7/dim64/512tokens", 1, 7, 64, 512},                       // 128 KiB, 21 KiB
    {"L2/group7/dim64/2048tokens", 1, 7, 64, 2048},                     // 512 KiB, 84 KiB
    {"qwen2.5-0.5b/group7/dim64/32768tokens", 24 * 2, 7, 64, 32768},    // 403 MB, 66 MB
    {"smollm2-135m/group3/dim64/8192tokens", 30 * 3, 3, 64, 8192},      // 189 MB, 31 MB
    {"qwen2.5-1.5b/group6/dim128/16384tokens", 28 * 2, 6, 128, 16384},  // 470 MB, 75 MB
    {"gemma3-270m/group4/dim256/16384tokens", 18, 4, 256, 16384},       // 302 MB, 48 MB
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
    {"K4V4/bias", 4, 4, Extras::kBias},
    {"K4V2/bias", 4, 2, Extras::kBias},
    {"K3V4/bias", 3, 4, Extras::kBias},
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
  // One set lives at a time: a shape's variants share it.
  static const CodeHeads& Shared(size_t heads, size_t tokens, CodeFormat format) {
    static std::unique_ptr<CodeHeads> shared;
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
  CodeState(size_t rows, size_t head_dim, size_t item_tokens)
      : windows(item_tokens / kOmega),
        base(rows, head_dim),
        q(rows * head_dim),
        q_scale(rows, 1.0f / 64.0f),
        bias(rows * windows),
        bias_of_window(windows),
        masses(rows * windows) {
    for (size_t i = 0; i < q.size(); ++i) {
      q[i] = int8_t(std::clamp(base.q[i] * std::sqrt(float(head_dim)) * 32.0f, -127.0f, 127.0f));
    }
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = float(i * 37 % 64) / 32.0f - 1.0f;
    for (size_t w = 0; w < bias_of_window.size(); ++w) bias_of_window[w] = uint32_t(w);
  }
  size_t windows;  // of an item
  BenchState base;
  std::vector<int8_t> q;
  std::vector<float> q_scale, bias;
  std::vector<uint32_t> bias_of_window;
  std::vector<float> masses;
};

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
       .bias_stride = state.windows,
       .bias_of_window = state.bias_of_window.data(),
       .state = state.base.state(),
       .masses = codes.extras == Extras::kBiasAndMasses ? state.masses.data() : nullptr,
       .mass_stride = state.windows});
}

struct Machine {
  size_t threads;
  MachineLimits limits;
};

// Times the items of a step, of which every thread takes every threads-th: item(thread, head, begin
// token, end token).
using ItemFn = std::function<void(size_t thread, size_t head, size_t begin, size_t end)>;
void TimeSteps(benchmark::State& bench, const Shape& shape, size_t item_tokens,
               const Machine& machine, const ItemFn& item) {
  const size_t items = (shape.tokens + item_tokens - 1) / item_tokens;
  StepThreads threads(machine.threads, [&](size_t thread) {
    for (size_t i = thread; i < shape.heads * items; i += machine.threads) {
      const size_t begin = i % items * item_tokens;
      item(thread, i / items, begin, std::min(begin + item_tokens, shape.tokens));
      benchmark::ClobberMemory();
    }
  });
  for (auto _ : bench) bench.SetIterationTime(threads.Run());
}

benchmark::Counter Rate(double each_step) {
  return benchmark::Counter(each_step, benchmark::Counter::kIsIterationInvariantRate);
}

void Report(benchmark::State& bench, const Shape& shape, size_t size_bytes,
            const MachineLimits& limits) {
  bench.counters["tokens"] = Rate(double(shape.heads * shape.tokens));
  bench.counters["bytes"] = Rate(double(size_bytes));
  bench.counters["of_read"] = Rate(double(size_bytes) / limits.read_bytes_per_s);
}

void BM_AttendCodes(benchmark::State& bench, AttendCodesFn run, const Codes& codes,
                    const Shape& shape, const Machine& machine) {
  const CodeFormat format{uint32_t(shape.head_dim), codes.key_bits, codes.value_bits};
  const CodeHeads& heads = CodeHeads::Shared(shape.heads, shape.tokens, format);
  const size_t item_tokens = CodeSplitTokens(uint32_t(shape.tokens));
  std::vector<CodeState> states(machine.threads,
                                CodeState(shape.group, shape.head_dim, item_tokens));
  TimeSteps(bench, shape, item_tokens, machine,
            [&](size_t thread, size_t head, size_t begin, size_t end) {
              CodeState& state = states[thread];
              ResetState(state.base.state(), shape.group, shape.head_dim);  // as f16's does
              Attend(run, codes, shape, heads.pages(head), begin, end, state);
            });
  Report(bench, shape, heads.size_bytes(), machine.limits);
}

void AttendFull(AttendDecodeFn run, const Shape& shape, KvView kv, size_t begin, size_t end,
                BenchState& state) {
  run({.group = shape.group,
       .head_dim = shape.head_dim,
       .q = state.q.data(),
       .kv = kv,
       .begin = begin,
       .end = end,
       .state = state.state()});
}

void BM_AttendFull(benchmark::State& bench, AttendDecodeFn run, const Shape& shape, KvType type,
                   const Machine& machine) {
  const KvHeads& heads = KvHeads::Shared(shape.heads, shape.tokens, shape.head_dim, type);
  std::vector<BenchState> states(machine.threads, BenchState(shape.group, shape.head_dim));
  TimeSteps(bench, shape, DecodeSplitTokens(uint32_t(shape.tokens)), machine,
            [&](size_t thread, size_t head, size_t begin, size_t end) {
              AttendFull(run, shape, heads.view(head), begin, end, states[thread]);
            });
  Report(bench, shape, heads.size_bytes(), machine.limits);
  bench.counters["of_fma"] =
      Rate(double(shape.heads * shape.tokens * shape.group * shape.head_dim * 4) /
           machine.limits.f32_flops);
}

constexpr size_t kCheckedTokens = 512;

void CheckFullAgainstScalar(const KernelVariant<AttendDecodeFn>& variant, const Shape& shape,
                            KvType type) {
  const KvHeads heads(1, kCheckedTokens, shape.head_dim, type);
  BenchState actual(shape.group, shape.head_dim), expected(shape.group, shape.head_dim);
  AttendFull(variant.run, shape, heads.view(0), 0, kCheckedTokens, actual);
  AttendFull(AttendDecodeVariants().back().run, shape, heads.view(0), 0, kCheckedTokens, expected);
  ExpectSameOutput(actual, expected, variant.name, shape.name);
}

// A wrong result is worth no time: ends the program before anything is measured. Scores are the
// same but for rounding; an output may differ by a weight that lies at a tie, 1/255 of the largest
// value.
void CheckCodesAgainstScalar(const KernelVariant<AttendCodesFn>& variant, const Codes& codes,
                             const Shape& shape) {
  const CodeHeads heads(1, kCheckedTokens,
                        {uint32_t(shape.head_dim), codes.key_bits, codes.value_bits});
  CodeState actual(shape.group, shape.head_dim, kCheckedTokens);
  CodeState expected(shape.group, shape.head_dim, kCheckedTokens);
  Attend(variant.run, codes, shape, heads.pages(0), 0, kCheckedTokens, actual);
  Attend(AttendCodesVariants().back().run, codes, shape, heads.pages(0), 0, kCheckedTokens,
         expected);
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
  const size_t most = std::max(1u, std::thread::hardware_concurrency());
  std::vector<Machine> machines;
  for (size_t threads : {size_t{1}, most}) {
    if (machines.empty() || threads > 1) {
      machines.push_back({threads, ReportMachine(SupportedIsas().front(), threads)});
    }
  }
  const auto add = [&](const std::string& name, const Shape& shape, auto run) {
    for (const Machine& machine : machines) {
      if (machine.threads > 1 && shape.heads == 1) continue;
      benchmark::RegisterBenchmark(
          (name + "/" + std::to_string(machine.threads) + "threads").c_str(),
          [run, &machine](benchmark::State& bench) { run(bench, machine); })
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    }
  };
  for (const KernelVariant<AttendDecodeFn>& variant : AttendDecodeVariants()) {
    if (!CpuSupports(variant.isa)) continue;
    for (const Shape& shape : kShapes) {
      // The reference takes seconds a step there.
      if (variant.isa == Isa::kScalar && shape.heads > 1) continue;
      const std::string place = std::string("/") + variant.name + "/" + shape.name;
      for (const KvType type : {KvType::kF16, KvType::kQ8}) {
        CheckFullAgainstScalar(variant, shape, type);
        add("Attend" + place + "/" + std::string(KvTypeName(type)), shape,
            [run = variant.run, &shape, type](benchmark::State& bench, const Machine& machine) {
              BM_AttendFull(bench, run, shape, type, machine);
            });
      }
      // Beside it, codes at the same level.
      const AttendCodesFn run_codes = SelectVariant(AttendCodesVariants(), variant.isa);
      for (const Codes& codes : kCodes) {
        CheckCodesAgainstScalar({variant.isa, variant.name, run_codes}, codes, shape);
        add("Attend" + place + "/" + codes.name, shape,
            [run_codes, &codes, &shape](benchmark::State& bench, const Machine& machine) {
              BM_AttendCodes(bench, run_codes, codes, shape, machine);
            });
      }
    }
  }
  benchmark::RunSpecifiedBenchmarks();
}
