// What the arithmetic of long prompts does to the prediction behind them: bf16 products and
// attention, where the CPU has them, against f32 throughout.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/isa.h"
#include "engine/calibration_text.h"
#include "engine/engine.h"
#include "eval/prediction_distance.h"
#include "support/real_model.h"
#include "support/scoped_environment.h"

namespace qevict::test {
namespace {

// Prompts that end anywhere in a text of some thousand tokens.
constexpr size_t kPromptTokens[] = {200, 450, 900};

class PromptAccuracyTest : public ::testing::TestWithParam<const char*> {
 protected:
  enum class Attention { kF32, kBest };
  struct Arithmetic {
    Products products;
    Attention attention;
  };

  // The logits behind every prompt.
  static std::vector<std::vector<float>> Logits(const std::string& path, Arithmetic arithmetic) {
    // The levels below avx512 attend in f32.
    const bool lower = arithmetic.attention == Attention::kF32 && CpuSupports(Isa::kAvx512);
    const ScopedEnvironment level("QEVICT_ISA", lower ? "avx2" : "");
    const auto engine = Engine::Load({.model_path = path, .products = arithmetic.products});
    EXPECT_TRUE(engine) << engine.error().message;
    const auto text =
        (*engine)->tokenizer().Encode(kCalibrationText, SpecialText::kPlain, Bos::kModelDefault);
    EXPECT_TRUE(text && text->size() > kPromptTokens[std::size(kPromptTokens) - 1]);
    std::vector<std::vector<float>> all;
    for (size_t tokens : kPromptTokens) {
      const auto sequence = (*engine)->NewSequence(uint32_t(tokens));
      EXPECT_TRUE(sequence);
      const Status status =
          (*engine)->Prefill(**sequence, std::span(*text).first(tokens), &all.emplace_back());
      EXPECT_TRUE(status) << status.error().message;
    }
    return all;
  }

  static double MeanKl(const std::vector<std::vector<float>>& exact,
                       const std::vector<std::vector<float>>& rounded) {
    double sum = 0.0;
    for (size_t i = 0; i < exact.size(); ++i)
      sum += ComparePredictions(exact[i], rounded[i], Token{0}).kl;
    return sum / double(exact.size());
  }
};

TEST_P(PromptAccuracyTest, PredictionsAreThoseOfF32) {
  const std::string_view model = GetParam();
  const std::string path = RealModel(std::string(model));
  QEVICT_NEED_MODEL(path);
  const auto exact = Logits(path, {Products::kFloat32, Attention::kF32});
  const double products = MeanKl(exact, Logits(path, {Products::kFastest, Attention::kF32}));
  const double both = MeanKl(exact, Logits(path, {Products::kFastest, Attention::kBest}));
  const double ggml = MeanKl(exact, Logits(path, {Products::kGgml, Attention::kBest}));
  fmt::print(
      "KL from f32 throughout: products {:.2e}, attention too {:.2e}, ggml's products {:.2e}\n",
      products, both, ggml);
  EXPECT_LE(both, ggml);
  EXPECT_LE(both, model == kSmolLm2 ? 2.5e-3 : 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Models, PromptAccuracyTest, ::testing::Values(kSmolLm2, kQwenHalfB),
                         [](const ::testing::TestParamInfo<const char*>& tested) {
                           return std::string(tested.index == 0 ? "SmolLm2" : "QwenHalfB");
                         });

}  // namespace
}  // namespace qevict::test
