#include "model/block_weights.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <thread>
#include <vector>

namespace qevict {
namespace {

constexpr uint32_t kInputs = 512;  // two of the largest blocks

// Weights as ggml quantises them.
struct StoredCase {
  StoredCase(ggml_type type, std::vector<uint32_t> part_outputs) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (const uint32_t part : part_outputs) outputs += part;
    std::vector<float> given(size_t{kInputs} * outputs);
    for (float& w : given) w = normal(random);
    const size_t row_bytes = ggml_row_size(type, kInputs);
    bytes.resize(row_bytes * outputs);
    ggml_quantize_chunk(type, given.data(), bytes.data(), 0, outputs, kInputs, nullptr);
    weights.resize(given.size());
    const uint8_t* from = bytes.data();
    for (const uint32_t part : part_outputs) {
      parts.push_back({from, type, part});
      from += part * row_bytes;
    }
    StoredWeight{bytes.data(), type, outputs}.Unpack(0, outputs, kInputs, weights.data());
    for (uint32_t o = 0; o < outputs; ++o) bias.push_back(normal(random));
  }
  uint32_t outputs = 0;
  std::vector<uint8_t> bytes;
  std::vector<float> weights, bias;  // [outputs, inputs]; [outputs]
  std::vector<StoredWeight> parts;
};

// Whole numbers with a largest of 127 in every group lose nothing to int8.
std::vector<float> WholeRows(uint32_t rows) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0f, 50.0f);
  std::vector<float> x(size_t{rows} * kInputs);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = i % kWeightGroup == 3 ? 127.0f : std::clamp(std::round(normal(random)), -127.0f, 127.0f);
  return x;
}

Isa BestIsa() { return SupportedIsas().front(); }

TEST(BlockWeightsTest, ProductsAreThoseOfTheWeightsAsGgmlUnpacksThem) {
  if (BestIsa() == Isa::kScalar) GTEST_SKIP() << "this CPU has no SIMD level";
  for (const ggml_type type : {GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q8_0,
                               GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K}) {
    for (const bool joined : {false, true}) {
      const StoredCase stored(type,
                              joined ? std::vector<uint32_t>{48, 64} : std::vector<uint32_t>{112});
      for (const size_t threads : {1, 2, 3, 9}) {
        const auto weights = BlockWeights::Plan(stored.parts, kInputs, BestIsa());
        ASSERT_NE(weights, nullptr);
        const size_t thread_bytes = weights->scratch_bytes() + 64;  // more than it needs
        const auto scratch = AlignedBuffer::Allocate(threads * thread_bytes).value();
        ASSERT_TRUE(weights->Pack(stored.parts, joined ? nullptr : stored.bias.data(),
                                  {scratch.as<uint8_t>(), thread_bytes}));
        for (const uint32_t rows : {1u, 33u, 300u}) {
          const std::vector<float> x = WholeRows(rows);
          std::vector<float> y(size_t{rows} * stored.outputs, NAN);
          std::vector<std::jthread> team;
          for (size_t t = 0; t < threads; ++t)
            team.emplace_back([&, t] { weights->Multiply(x.data(), y.data(), rows, t, threads); });
          team.clear();
          for (uint32_t r = 0; r < rows; ++r) {
            for (uint32_t o = 0; o < stored.outputs; ++o) {
              double sum = joined ? 0.0 : double(stored.bias[o]);
              for (uint32_t i = 0; i < kInputs; ++i)
                sum += double(stored.weights[o * kInputs + i]) * double(x[r * kInputs + i]);
              // Four roundings in each of 16 groups, of sums below 32 * 8 * 127 (the offsets of
              // codes included).
              ASSERT_NEAR(y[r * stored.outputs + o], sum, 4 * 16 * 0x1p-24 * 32 * 8 * 127)
                  << ggml_type_name(type) << ", row " << r << ", output " << o;
            }
          }
        }
      }
    }
  }
}

TEST(BlockWeightsTest, WhatTheKernelHasNoLayoutForStaysWithGgml) {
  const auto plan = [](ggml_type type, std::vector<uint32_t> outputs, Isa isa) {
    const StoredCase stored(type, std::move(outputs));
    return BlockWeights::Plan(stored.parts, kInputs, isa) != nullptr;
  };
  EXPECT_FALSE(plan(GGML_TYPE_IQ4_NL, {32}, BestIsa()));
  EXPECT_FALSE(plan(GGML_TYPE_F16, {32}, BestIsa()));
  EXPECT_FALSE(plan(GGML_TYPE_Q5_0, {24}, BestIsa()));      // no whole tiles
  EXPECT_FALSE(plan(GGML_TYPE_Q5_0, {16, 24}, BestIsa()));  // nor here
  EXPECT_FALSE(plan(GGML_TYPE_Q5_0, {32}, Isa::kScalar));   // slower than ggml
}

TEST(BlockWeightsTest, MemoryThatRunsOutIsAnError) {
  if (BestIsa() == Isa::kScalar) GTEST_SKIP() << "this CPU has no SIMD level";
  const StoredCase stored(GGML_TYPE_Q5_0, {32});
  const auto weights = BlockWeights::Plan(stored.parts, kInputs, BestIsa());
  const FailingAllocation failing(0);
  const Status status = weights->Pack(stored.parts, nullptr, {});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
}

}  // namespace
}  // namespace qevict
