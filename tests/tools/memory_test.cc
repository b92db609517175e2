// Memory as the kernel sees it: what a budget promises, the process really gives up.
#include <gtest/gtest.h>

#include <fstream>

#include "support/real_model.h"
#include "support/tiny_model.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/program.h"

namespace qevict::test {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

struct Measured {
  double peak = 0, kv_peak = 0, kv_limit = 0, full_f16 = 0, staging = 0;  // MiB
};

class MemoryTest : public ::testing::Test {
 protected:
  // Small weights and a large cache: 64 KiB a token.
  static TinyModelConfig Config() {
    TinyModelConfig config;
    config.layers = 8;
    config.kv_heads = 8;
    config.group = 1;
    config.head_dim = 256;
    config.context = 8192;
    return config;
  }
  void SetUp() override {
    prompt_ = folder_.path() / "prompt";
    std::ofstream file(prompt_);
    for (int i = 0; i < 1'600; ++i) file << char('a' + i * i % 23);
  }
  Measured Run(std::vector<std::string> flags) const {
    std::vector<std::string> arguments = {"run",    "-m", model_.path(), "--ignore-eos", "--raw",
                                          "--json", "-f", prompt_,       "-n",           "16"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const ProgramRun run = RunQevict(arguments);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    if (run.exit_code != 0) return {};
    const nlohmann::json kv = run.json().at("kv");
    return {.peak = double(run.peak_resident_bytes) / kMiB,
            .kv_peak = kv.at("peak_bytes").get<double>() / kMiB,
            .kv_limit = kv.at("limit_bytes").get<double>() / kMiB,
            .full_f16 = kv.at("full_f16_bytes").get<double>() / kMiB,
            .staging = !kv.contains("tiers")
                           ? 0.0
                           : kv.at("tiers").at("staging_peak_bytes").get<double>() / kMiB};
  }

  const TinyModelFile model_{Config()};
  const TemporaryFolder folder_;
  std::string prompt_;
};

TEST_F(MemoryTest, ThePeakOfTheProcessFallsAsTheBudgetSays) {
  const std::string cache = folder_.path() / "cache";
  ASSERT_EQ(setenv("QEVICT_CACHE", cache.c_str(), 1), 0);
  Run({"--kv-budget", "20%", "--prefill", "stream"});  // measures the codec's tables, once
  const Measured full = Run({"--policy", "full"});
  EXPECT_GT(full.kv_peak, 95.0);
  struct Case {
    const char *budget, *prefill;
    double staging;  // MiB: one layer's K and V, or a piece of 4 * 128 tokens beside the full tier
  };
  for (const Case& each : {Case{"20%", "exact", full.full_f16 / 8}, Case{"20%", "stream", 32 + 20},
                           Case{"8%", "stream", 32 + 8}}) {
    SCOPED_TRACE(std::string(each.budget) + " " + each.prefill);
    const Measured tiered =
        Run({"--kv-budget", each.budget, "--prefill", each.prefill, "--chunk", "128"});
    EXPECT_LE(tiered.kv_peak, tiered.kv_limit);
    EXPECT_LE(tiered.staging, each.staging * 1.1);
    const double saved = full.kv_peak - tiered.kv_peak - tiered.staging;
    EXPECT_GT(saved, 30.0);
    // Scratch of attention to codes and of coding stays below 12 MiB.
    EXPECT_LE(tiered.peak, full.peak - saved + 12.0)
        << "KV " << tiered.kv_peak << ", staging " << tiered.staging;
  }
  unsetenv("QEVICT_CACHE");
}

// The weights of one layer are unpacked at a time, and rows pass in chunks.
TEST_F(MemoryTest, ALongPromptNeedsTwoLayersOfUnpackedWeightsAnd64MiBBesideItsCacheAtMost) {
  const std::string model = RealModel(kSmolLm2);
  QEVICT_NEED_MODEL(model);
  constexpr size_t kTokens = 1'600, kEmbedding = 576, kLayerWeights = 3'539'520;
  const auto run = [&](const std::string& text) {
    const std::string path = folder_.path() / "text";
    std::ofstream(path) << text;
    const ProgramRun done =
        RunQevict({"run", "-m", model, "--raw", "--json", "-f", path, "-n", "1"});
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return done;
  };
  std::string text;
  for (size_t t = 0; t < kTokens; ++t) text += " the";
  const ProgramRun one = run("the"), all = run(text);
  ASSERT_GE(all.json().at("prompt_tokens").get<size_t>(), kTokens);
  const double kv = all.json().at("kv").at("peak_bytes").get<double>();
  const double hidden_states = double(kTokens) * kEmbedding * sizeof(float);
  EXPECT_LE(double(all.peak_resident_bytes) - double(one.peak_resident_bytes),
            kv + hidden_states + 2.0 * kLayerWeights * sizeof(uint16_t) + 64 * kMiB);
}

}  // namespace
}  // namespace qevict::test
