// Products of one row (a decode step) and of many (a prompt) with block weights, on one thread.
// `weights` are bytes of weights read, `ops` the operations of the product.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/kernels/register_variants.h"
#include "core/aligned_buffer.h"
#include "kernels/multiply_blocks/multiply_blocks.h"

namespace qevict {
namespace {

struct ProductShape {
  const char* name;
  WeightFormat format;
  size_t rows, inputs, outputs;
};

constexpr ProductShape kShapes[] = {
    {"L1/Q4_1/1x256x32", kQ41, 1, 256, 32},
    {"Q4_1/1x576x3072", kQ41, 1, 576, 3072},  // gate and up of SmolLM2-135M
    {"Q4_1/32x576x3072", kQ41, 32, 576, 3072},
    {"Q5_0/1x896x9728", kQ50, 1, 896, 9728},  // of Qwen2.5-0.5B
    {"Q5_0/32x896x9728", kQ50, 32, 896, 9728},
    {"Q4_K/32x1536x8960", kQ4K, 32, 1536, 8960},  // up of Qwen2.5-1.5B
    {"Q6_K/32x8960x1536", kQ6K, 32, 8960, 1536},  // its down
    {"Q8_0/32x896x9728", kQ80, 32, 896, 9728},
    {"past_L3/Q5_0/1x896x131072", kQ50, 1, 896, 131072},  // 81 MB
    {"past_L3/Q8_0/1x896x151936", kQ80, 1, 896, 151936},  // the head of Qwen2.5-0.5B
    {"past_L3/Q4_K/1x1536x98304", kQ4K, 1, 1536, 98304},
    {"past_L3/Q6_K/1x1536x98304", kQ6K, 1, 1536, 98304},
};

struct ProductBlock {
  explicit ProductBlock(const ProductShape& shape)
      : weights(AlignedBuffer::Allocate(shape.outputs / kTileOutputs *
                                        TileBytes(shape.format, shape.inputs))
                    .value()),
        scratch(AlignedBuffer::Allocate(MultiplyScratchBytes(shape.inputs)).value()),
        x(shape.rows * shape.inputs),
        y(shape.rows * shape.outputs) {
    // Any bytes are codes; f16 scales of random bits may be huge, so that their exponent is cut.
    uint32_t state = 1;
    for (size_t i = 0; i < weights.size_bytes(); ++i) {
      state = state * 1664525u + 1013904223u;
      weights.as<uint8_t>()[i] = uint8_t(state >> 24 & 0xb7u);
    }
    for (size_t i = 0; i < x.size(); ++i) x[i] = float(i * i % 199) - 99.0f;
    args = {.format = shape.format,
            .rows = shape.rows,
            .inputs = shape.inputs,
            .tiles = shape.outputs / kTileOutputs,
            .x = x.data(),
            .weights = weights.as<uint8_t>(),
            .y = y.data(),
            .y_stride = shape.outputs,
            .scratch = scratch.as<uint8_t>()};
  }
  AlignedBuffer weights, scratch;
  std::vector<float> x, y;
  MultiplyBlocksArgs args;
};

void BM_MultiplyBlocks(benchmark::State& bench, MultiplyBlocksFn run, const ProductShape& shape) {
  const ProductBlock block(shape);
  for (auto _ : bench) {
    run(block.args);
    benchmark::ClobberMemory();
  }
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  bench.counters["weights"] = benchmark::Counter(double(block.weights.size_bytes()), rate);
  bench.counters["ops"] =
      benchmark::Counter(2.0 * double(shape.rows * shape.inputs * shape.outputs), rate);
}

// A wrong result is worth no time: ends the program before anything is measured.
void CheckAgainstScalar(const KernelVariant<MultiplyBlocksFn>& variant, ProductShape shape) {
  shape.outputs = std::min<size_t>(shape.outputs, 64);
  const ProductBlock actual(shape), expected(shape);
  variant.run(actual.args);
  MultiplyBlocksVariants().back().run(expected.args);
  for (size_t i = 0; i < actual.y.size(); ++i) {
    // Sums of a few dozen groups in another order of rounding.
    if (std::abs(actual.y[i] - expected.y[i]) > 1e-4f * (std::abs(expected.y[i]) + 1e4f)) {
      std::fprintf(stderr, "%s %s: not the products of the scalar reference\n", variant.name,
                   shape.name);
      std::exit(1);
    }
  }
}

}  // namespace
}  // namespace qevict

int main(int argc, char** argv) {
  using namespace qevict;
  benchmark::Initialize(&argc, argv);
  RegisterVariants("MultiplyBlocks", MultiplyBlocksVariants(), kShapes, CheckAgainstScalar,
                   BM_MultiplyBlocks);
  benchmark::RunSpecifiedBenchmarks();
}
