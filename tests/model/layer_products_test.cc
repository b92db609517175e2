#include "model/layer_products.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "model/cpu_backend.h"

namespace qevict {
namespace {

// A Linear over weights of its own, in one part or two.
struct WeightCase {
  WeightCase(ggml_type weight_type, uint32_t input_count, std::vector<uint32_t> parts,
             bool with_bias)
      : type(weight_type), inputs(input_count) {
    std::mt19937 rng(7);
    std::normal_distribution<float> normal;
    for (uint32_t part : parts) outputs += part;
    std::vector<float> given(size_t{inputs} * outputs);
    for (float& w : given) w = normal(rng);
    const size_t row_bytes = ggml_row_size(type, inputs);
    bytes.resize(row_bytes * outputs);
    ggml_quantize_chunk(type, given.data(), bytes.data(), 0, outputs, inputs, nullptr);
    weights = given;
    if (type != GGML_TYPE_F32) {
      ggml_get_type_traits(type)->to_float(bytes.data(), weights.data(), int64_t(weights.size()));
    }
    context.reset(ggml_init({size_t{1} << 20, nullptr, /*no_alloc=*/false}));
    // Shape and name alone matter: the product reads the stored parts.
    ggml_context* shapes = context.get();
    ggml_set_no_alloc(shapes, true);
    linear.weight = ggml_new_tensor_2d(shapes, type, inputs, outputs);
    ggml_set_no_alloc(shapes, false);
    if (with_bias) {
      linear.bias = ggml_new_tensor_1d(shapes, GGML_TYPE_F32, outputs);
      for (uint32_t o = 0; o < outputs; ++o) {
        bias.push_back(normal(rng));
        static_cast<float*>(linear.bias->data)[o] = bias.back();
      }
    }
    size_t first = 0;
    for (uint32_t part : parts) {
      linear.stored.push_back({bytes.data() + first * row_bytes, type, part});
      first += part;
    }
  }
  ggml_type type;
  uint32_t inputs, outputs = 0;
  std::vector<uint8_t> bytes;
  std::vector<float> weights, bias;  // [outputs, inputs], as stored
  GgmlContextPtr context;
  Linear linear;
};

std::vector<float> RandomRows(uint32_t rows, uint32_t inputs) {
  std::mt19937 rng(11);
  std::normal_distribution<float> normal;
  std::vector<float> x(size_t{rows} * inputs);
  for (float& value : x) value = normal(rng);
  return x;
}

void OnThreads(size_t threads, const std::function<void(size_t)>& body) {
  std::vector<std::thread> team;
  for (size_t t = 0; t < threads; ++t) team.emplace_back(body, t);
  for (std::thread& member : team) member.join();
}

class LayerProductsTest : public ::testing::TestWithParam<Products> {
 protected:
  void SetUp() override {
    if (LayerProducts::Create(GetParam(), 1) == nullptr)
      GTEST_SKIP() << "this build or CPU has no oneDNN products";
  }

  static std::vector<float> Multiply(const WeightCase& weight, const std::vector<float>& x,
                                     uint32_t threads) {
    const auto products = LayerProducts::Create(GetParam(), threads);
    const uint32_t rows = uint32_t(x.size() / weight.inputs);
    const Linear* const linears[] = {&weight.linear};
    EXPECT_TRUE(products->Load(linears));
    OnThreads(threads, [&](size_t thread) { products->Unpack(thread, threads); });
    EXPECT_TRUE(products->PrepareRows(rows));
    RowProduct* product = products->Find(weight.linear);
    std::vector<float> y(size_t{rows} * weight.outputs, NAN);
    OnThreads(threads,
              [&](size_t thread) { product->Multiply(x.data(), y.data(), rows, thread, threads); });
    EXPECT_TRUE(products->TakeStatus());
    return y;
  }

  // Both factors may be rounded to 8 bits, each off by 2^-9; the sum in f32 adds its own.
  static void ExpectProduct(const WeightCase& weight, const std::vector<float>& x,
                            const std::vector<float>& y) {
    const bool f32 = GetParam() == Products::kFloat32;
    const float unit = (f32 ? 0.0f : 0x1.02p-8f) + float(weight.inputs) * 0x1p-24f;
    for (size_t row = 0; row < x.size() / weight.inputs; ++row) {
      for (uint32_t o = 0; o < weight.outputs; ++o) {
        double sum = weight.bias.empty() ? 0.0 : double(weight.bias[o]), size = std::abs(sum);
        for (uint32_t i = 0; i < weight.inputs; ++i) {
          const double term = double(x[row * weight.inputs + i]) *
                              double(weight.weights[size_t{o} * weight.inputs + i]);
          sum += term;
          size += std::abs(term);
        }
        ASSERT_NEAR(y[row * weight.outputs + o], sum, size * double(unit))
            << "row " << row << " output " << o;
      }
    }
  }
};

TEST_P(LayerProductsTest, MultipliesEveryTypeOfWeight) {
  for (ggml_type type :
       {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1,
        GGML_TYPE_Q5_0, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K}) {
    SCOPED_TRACE(ggml_type_name(type));
    const WeightCase weight(type, 256, {96}, false);
    const std::vector<float> x = RandomRows(40, 256);
    ExpectProduct(weight, x, Multiply(weight, x, 2));
  }
}

TEST_P(LayerProductsTest, MultipliesEveryNumberOfRowsAndOddShapes) {
  for (uint32_t inputs : {32, 96, 576}) {
    for (uint32_t outputs : {1, 48, 100, 200}) {
      const WeightCase weight(GGML_TYPE_Q8_0, inputs, {outputs}, true);
      for (uint32_t rows : {1, 2, 17, 127, 128, 129, 300}) {
        SCOPED_TRACE(std::to_string(inputs) + " inputs, " + std::to_string(outputs) + " outputs, " +
                     std::to_string(rows) + " rows");
        const std::vector<float> x = RandomRows(rows, inputs);
        ExpectProduct(weight, x, Multiply(weight, x, 3));
      }
    }
  }
}

// Panels between unpacking and laying out are cut anywhere in a weight of two parts.
TEST_P(LayerProductsTest, StacksPartsAlongTheOutputs) {
  for (uint32_t first : {1, 63, 64, 65, 130}) {
    const WeightCase weight(GGML_TYPE_Q4_0, 4096, {first, 200 - first}, true);
    const std::vector<float> x = RandomRows(3, 4096);
    ExpectProduct(weight, x, Multiply(weight, x, 2));
  }
}

TEST_P(LayerProductsTest, BitsDoNotDependOnThreads) {
  const WeightCase weight(GGML_TYPE_Q4_K, 512, {160}, true);
  const std::vector<float> x = RandomRows(333, 512);
  const std::vector<float> one = Multiply(weight, x, 1);
  for (uint32_t threads : {2, 3, 7}) EXPECT_EQ(Multiply(weight, x, threads), one) << threads;
}

TEST_P(LayerProductsTest, ALayerTakesThePlaceOfTheOneBefore) {
  const auto products = LayerProducts::Create(GetParam(), 1);
  const WeightCase first(GGML_TYPE_Q8_0, 64, {64}, false), second(GGML_TYPE_Q4_1, 64, {64}, true);
  const std::vector<float> x = RandomRows(130, 64);
  std::vector<float> y(130 * 64);
  uint64_t bytes = 0;
  for (const WeightCase* weight : {&first, &second, &first}) {
    const Linear* const linears[] = {&weight->linear};
    ASSERT_TRUE(products->Load(linears));
    products->Unpack(0, 1);
    ASSERT_TRUE(products->PrepareRows(130));
    products->Find(weight->linear)->Multiply(x.data(), y.data(), 130, 0, 1);
    ASSERT_TRUE(products->TakeStatus());
    ExpectProduct(*weight, x, y);
    if (bytes != 0) {
      EXPECT_EQ(products->bytes(), bytes);
    }
    bytes = products->bytes();
  }
  EXPECT_EQ(products->Find(second.linear), nullptr);
}

// As many as whole prompts of all lengths leave behind in one engine.
TEST_P(LayerProductsTest, ARestThatIsNewLeavesTheWholeBlockOfItsRows) {
  const auto products = LayerProducts::Create(GetParam(), 1);
  const WeightCase weight(GGML_TYPE_Q8_0, 32, {16}, false);
  const Linear* const linears[] = {&weight.linear};
  ASSERT_TRUE(products->Load(linears));
  products->Unpack(0, 1);
  for (uint32_t rest = 1; rest <= 40; ++rest) {
    const std::vector<float> x = RandomRows(128 + rest, 32);
    std::vector<float> y((128 + rest) * 16, NAN);
    ASSERT_TRUE(products->PrepareRows(128 + rest));
    products->Find(weight.linear)->Multiply(x.data(), y.data(), 128 + rest, 0, 1);
    ASSERT_TRUE(products->TakeStatus()) << rest;
    ExpectProduct(weight, x, y);
  }
}

TEST_P(LayerProductsTest, AFailureThatNobodyTookEndsWithTheNextLoad) {
  const auto products = LayerProducts::Create(GetParam(), 1);
  const WeightCase weight(GGML_TYPE_Q8_0, 32, {16}, false);
  const Linear* const linears[] = {&weight.linear};
  const std::vector<float> x = RandomRows(5, 32);
  std::vector<float> y(5 * 16);
  const auto multiply = [&] {
    products->Unpack(0, 1);
    products->Find(weight.linear)->Multiply(x.data(), y.data(), 5, 0, 1);
  };
  ASSERT_TRUE(products->Load(linears));
  multiply();  // not prepared
  EXPECT_FALSE(products->TakeStatus());
  multiply();
  ASSERT_TRUE(products->Load(linears));
  ASSERT_TRUE(products->PrepareRows(5));
  multiply();
  EXPECT_TRUE(products->TakeStatus());
}

TEST(LayerProductsDescriptionTest, NamesWhatMultiplies) {
  EXPECT_EQ(LayerProducts::Describe(Products::kGgml), "ggml");
  EXPECT_EQ(LayerProducts::Create(Products::kGgml, 2), nullptr);
  const std::string fastest = LayerProducts::Describe(Products::kFastest);
  EXPECT_EQ(fastest != "ggml", LayerProducts::Create(Products::kFastest, 2) != nullptr);
}

INSTANTIATE_TEST_SUITE_P(Types, LayerProductsTest,
                         ::testing::Values(Products::kFastest, Products::kFloat32),
                         [](const ::testing::TestParamInfo<Products>& tested) {
                           return tested.param == Products::kFastest ? "Fastest" : "Float32";
                         });

}  // namespace
}  // namespace qevict
