#include "eval/fidelity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/tiny_model.h"

namespace qevict::test {
namespace {

using ::testing::HasSubstr;

constexpr FidelityConfig kLengths{.context_tokens = 200, .decode_tokens = 24};

class FidelityTest : public ::testing::Test {
 protected:
  static TinyModelConfig Config(uint32_t context = 512) {
    return {.family = Family::kQwen2, .context = context};
  }
  static std::unique_ptr<Engine> Load(const TinyModelFile& file, const CacheConfig& cache) {
    auto engine = Engine::Load(
        {.model_path = file.path(), .threads = 2, .prefill_chunk = 64, .cache = cache});
    if (!engine) ADD_FAILURE() << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }
  static FidelityRun Start(Engine& engine, std::span<const Token> text,
                           const FidelityConfig& config = kLengths) {
    auto run = FidelityRun::Start(engine, config, text, {});
    if (!run) ADD_FAILURE() << run.error().message;
    return std::move(*run);
  }
  static Fidelity Of(FidelityRun& run, const char* codec) {
    auto fidelity = run.MeasureCodec(ParseCodec(codec).value(), {});
    if (!fidelity) ADD_FAILURE() << fidelity.error().message;
    return fidelity ? *fidelity : Fidelity{};
  }
  static void ExpectSame(const Fidelity& a, const Fidelity& b) {
    EXPECT_EQ(a.kl, b.kl);
    EXPECT_EQ(a.top1, b.top1);
    EXPECT_EQ(a.dlogppl, b.dlogppl);
  }

  const TinyModelFile tiny_{Config()};
  const std::vector<Token> text_ = RandomTokens(Config(), 300, 11);
};

TEST_F(FidelityTest, TheFullCacheDiffersFromItselfByExactlyNothing) {
  const auto engine = Load(tiny_, {.policy = CachePolicy::kFull});
  const FidelityRun run = Start(*engine, text_);
  const Fidelity same = run.MeasureCache({}).value();
  EXPECT_EQ(same.kl, 0.0);
  EXPECT_EQ(same.top1, 1.0);
  EXPECT_EQ(same.dlogppl, 0.0);
  // 2 layers, 2 KV heads of 64 channels, keys and values of two bytes; slots come by the 16.
  EXPECT_EQ(same.bytes, 224u * 2 * 2 * 64 * 2 * 2);
  EXPECT_EQ(same.share, 1.0);
  EXPECT_EQ(same.bits, 16.0);
}

TEST_F(FidelityTest, ACodecWithoutHistoryChangesNothing) {
  const auto engine = Load(tiny_, {.policy = CachePolicy::kQuant});
  FidelityConfig config = kLengths;
  config.geometry.local = 1024;
  FidelityRun run = Start(*engine, text_, config);
  const Fidelity same = Of(run, "k2v1");
  EXPECT_EQ(same.kl, 0.0);
  EXPECT_EQ(same.top1, 1.0);
  EXPECT_EQ(same.share, 1.0);
}

TEST_F(FidelityTest, MemoryThatIsNotThereIsMissedBeforeTheContextIsRead) {
  const auto engine = Load(tiny_, {.policy = CachePolicy::kFull});
  const char* const advice[] = {"--ctx", "-n", "--context"};
  for (uint32_t allowed = 0; allowed < std::size(advice); ++allowed) {
    const FailingAllocation failing(allowed);
    const auto run = FidelityRun::Start(
        *engine, kLengths, text_,
        {.progress = [](uint32_t, uint32_t) { ADD_FAILURE() << "has read some"; }, .cancel = {}});
    ASSERT_FALSE(run.has_value());
    EXPECT_EQ(run.error().code, ErrorCode::kOutOfMemory);
    EXPECT_THAT(run.error().message, HasSubstr(std::string("lower ") + advice[allowed]));
  }
}

TEST_F(FidelityTest, MoreBitsAreCloser) {
  const auto engine = Load(tiny_, {.policy = CachePolicy::kQuant});
  FidelityRun run = Start(*engine, text_);
  const Fidelity k4v4 = Of(run, "k4v4"), k3v2 = Of(run, "k3v2"), k2v1 = Of(run, "k2v1");
  EXPECT_GT(k4v4.kl, 0.0);
  EXPECT_LT(2 * k4v4.kl, k3v2.kl);
  EXPECT_LT(2 * k3v2.kl, k2v1.kl);
  EXPECT_GE(k4v4.top1, k2v1.top1);
  EXPECT_LT(Of(run, "minmax8").kl, Of(run, "minmax2").kl);
}

TEST_F(FidelityTest, WhatWasMeasuredBeforeLeavesNoTrace) {
  const auto engine = Load(tiny_, {.policy = CachePolicy::kQuant});
  FidelityRun run = Start(*engine, text_);
  const Fidelity first = Of(run, "k3v2");
  Of(run, "k2v1");
  Of(run, "minmax2");
  ExpectSame(Of(run, "k3v2"), first);
}

TEST_F(FidelityTest, ModelsWithSlidingWindowsAreMeasuredToo) {
  TinyModelConfig config{.family = Family::kGemma3, .layers = 6, .context = 512, .swa_window = 32};
  const TinyModelFile gemma(config);
  const auto engine = Load(gemma, {.policy = CachePolicy::kQuant});
  const auto text = RandomTokens(config, 300, 12);
  FidelityRun run = Start(*engine, text);
  const Fidelity first = Of(run, "k3v2");
  EXPECT_GT(first.kl, 0.0);
  EXPECT_LT(Of(run, "k4v4").kl, first.kl);
  ExpectSame(Of(run, "k3v2"), first);
}

TEST_F(FidelityTest, ACodecsBytesAreThoseOfItsHistoryAsCodesAndTheRestInF16) {
  const auto engine = Load(tiny_, {.policy = CachePolicy::kQuant});
  FidelityRun run = Start(*engine, text_);
  const Fidelity k4v4 = Of(run, "k4v4");
  EXPECT_EQ(k4v4.bits, 4.0 + 8.0 / 64);
  // Of 200 tokens 4 are sinks, and of the 24 windows behind them 8 are local: 128 are history. An
  // f16 token takes 2 * 2 * 64 * 2 elements of 2 bytes.
  const uint64_t token = 2 * 2 * 64 * 2 * 2;
  EXPECT_EQ(k4v4.bytes, (224 - 128) * token + 128 * token * 33 / 128);
  EXPECT_DOUBLE_EQ(k4v4.share, double(k4v4.bytes) / double(224 * token));
}

// Long enough that codes, which are allocated in slabs, are smaller than f16.
constexpr FidelityConfig kLong{.context_tokens = 1500, .decode_tokens = 24};

TEST_F(FidelityTest, ACacheOfCodesPredictsWhatItsCodecPredicts) {
  const TinyModelFile file(Config(2048));
  const auto engine = Load(file, {.policy = CachePolicy::kQuant});
  const auto text = RandomTokens(Config(), 1600, 13);
  FidelityRun run = Start(*engine, text, kLong);
  const Fidelity codec = Of(run, "k3v2"), cache = run.MeasureCache({}).value();
  // The cache codes the windows that leave the local zone while it decodes too, and rounds queries
  // to 127ths: up to as much again, not ten times as much.
  EXPECT_GT(cache.kl, 0.5 * codec.kl);
  EXPECT_LT(cache.kl, 3.0 * codec.kl);
  EXPECT_LT(cache.share, 1.0);
  EXPECT_DOUBLE_EQ(cache.bits, 16.0 * cache.share);
}

TEST_F(FidelityTest, ASmallerBudgetIsFartherAway) {
  const TinyModelFile file(Config(2048));
  const auto text = RandomTokens(Config(), 1600, 14);
  const auto measure = [&](const KvBudget& budget) {
    const auto engine = Load(file, {.policy = CachePolicy::kAuto, .budget = budget});
    const auto fidelity = Start(*engine, text, kLong).MeasureCache({});
    if (!fidelity) ADD_FAILURE() << fidelity.error().message;
    return fidelity ? *fidelity : Fidelity{};
  };
  const Fidelity unlimited = measure({.bytes = uint64_t{1} << 30});
  const Fidelity half = measure({.share = 0.5}), few = measure({.share = 0.25});
  EXPECT_EQ(unlimited.kl, 0.0);
  EXPECT_EQ(unlimited.top1, 1.0);
  EXPECT_GT(half.kl, 0.0);
  EXPECT_LE(half.share, 0.5);
  // Windows are evicted.
  EXPECT_GT(few.kl, 1.1 * half.kl);
  EXPECT_LE(few.share, 0.25);
}

TEST_F(FidelityTest, ATextThatIsTooShortIsRefusedWithTheNumberOfTokens) {
  const auto engine = Load(tiny_, {.policy = CachePolicy::kFull});
  const auto needed = std::span(text_).first(225);
  EXPECT_TRUE(FidelityRun::Start(*engine, kLengths, needed, {}));
  const auto refused = FidelityRun::Start(*engine, kLengths, needed.first(224), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().message,
            "the text has 224 tokens, and 225 are needed; give a longer text or lower --context");
}

TEST_F(FidelityTest, LengthsThatDoNotFitAreRefused) {
  const auto engine = Load(tiny_, {.policy = CachePolicy::kFull});
  const auto code = [&](const FidelityConfig& config) {
    const auto run = FidelityRun::Start(*engine, config, text_, {});
    EXPECT_FALSE(run);
    return run ? ErrorCode::kInternal : run.error().code;
  };
  EXPECT_EQ(code({.context_tokens = 0, .decode_tokens = 8}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.context_tokens = 8, .decode_tokens = 0}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.context_tokens = 500, .decode_tokens = 13}), ErrorCode::kContextFull);
}

TEST_F(FidelityTest, CanBeCancelledAndShowsHowFarItIs) {
  const auto engine = Load(tiny_, {.policy = CachePolicy::kQuant});
  uint32_t last = 0, total_tokens = 0;
  const FidelityHooks hooks{[&](uint32_t done, uint32_t total) {
                              EXPECT_GE(done, last);
                              last = done;
                              total_tokens = total;
                            },
                            {}};
  auto run = FidelityRun::Start(*engine, kLengths, text_, hooks);
  ASSERT_TRUE(run);
  EXPECT_EQ(last, 224u);
  EXPECT_EQ(total_tokens, 224u);
  const auto cancelled = run->MeasureCodec({}, {{}, [] { return true; }});
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(FidelityRun::Start(*engine, kLengths, text_, {{}, [] { return true; }}).error().code,
            ErrorCode::kCancelled);
}

}  // namespace
}  // namespace qevict::test
