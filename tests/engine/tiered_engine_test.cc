// The tiered cache under a whole model.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "engine/engine.h"
#include "model/layer_products.h"
#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace qevict::test {
namespace {

constexpr uint32_t kTieredChunk = 32;

class TieredEngineTest : public ::testing::TestWithParam<NamedTinyModel> {
 protected:
  static CacheConfig Cache(CachePolicy policy, const char* budget) {
    CacheConfig cache;
    cache.policy = policy;
    cache.budget = ParseKvBudget(budget).value();
    cache.geometry = {.omega = 8, .sinks = 4, .local = 32};
    static const TemporaryFolder tables;  // measured once per model
    cache.tables_folder = tables.path().string();
    return cache;
  }
  // Too little for f16, enough for codes. Most layers of gemma3 are rings, so its f16 cache takes
  // 17 % of what a cache of every token in every layer would, and one layer's codes need a longer
  // context to be smaller than f16: they come in pages of 64 tokens.
  static bool HasRings() { return GetParam().config.family == Family::kGemma3; }
  static const char* Tight() { return HasRings() ? "10%" : "60%"; }
  static uint32_t Context() { return HasRings() ? 2048 : 512; }
  // Room for about 256 tokens in f16, beside what rings take.
  CacheConfig RoomForSome() const {
    CacheConfig cache = Cache(CachePolicy::kEvict, "1GiB");
    const auto engine = Load(cache);
    const KvShape shape = engine->hyperparameters().kv_shape();
    const uint64_t everything = engine->NewSequence(Context()).value()->kv_usage().used_bytes;
    cache.budget = KvBudget{.bytes = everything - RoutedLayers(shape) * shape.layer_token_bytes() *
                                                      (Context() - 256)};
    return cache;
  }
  std::unique_ptr<Engine> Load(const CacheConfig& cache, uint32_t threads = 2) const {
    auto engine = Engine::Load({.model_path = tiny_.path(),
                                .threads = threads,
                                .prefill_chunk = kTieredChunk,
                                .cache = cache});
    if (!engine) ADD_FAILURE() << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }
  std::vector<Token> Prompt(size_t tokens) const {
    return RandomTokens(GetParam().config, tokens, 5);
  }
  struct Run {
    std::vector<float> prompt_logits, last_logits;
    std::vector<Token> tokens;
  };
  // A prompt of 300 tokens, then greedy tokens.
  Run Greedy(Engine& engine, Sequence& sequence, uint32_t steps) const {
    Run run;
    const std::vector<Token> prompt = Prompt(300);
    EXPECT_TRUE(engine.Prefill(sequence, prompt, &run.prompt_logits));
    std::vector<float> logits = run.prompt_logits;
    for (uint32_t s = 0; s < steps; ++s) {
      run.tokens.push_back(Token(std::ranges::max_element(logits) - logits.begin()));
      BatchItem item{
          .sequence = &sequence, .tokens = std::span(run.tokens).last(1), .logits_out = &logits};
      EXPECT_TRUE(engine.Run({&item, 1}, {}));
      const KvUsage usage = sequence.kv_usage();
      EXPECT_LE(usage.used_bytes, usage.limit_bytes);
    }
    run.last_logits = logits;
    return run;
  }
  Run GreedyOf(const CacheConfig& cache, uint32_t steps, uint32_t threads = 2) const {
    const auto engine = Load(cache, threads);
    const auto sequence = engine->NewSequence(Context());
    if (!sequence) ADD_FAILURE() << sequence.error().message;
    return sequence ? Greedy(*engine, **sequence, steps) : Run{};
  }

  const TinyModelFile tiny_{GetParam().config};
};

TEST_P(TieredEngineTest, AnUnlimitedBudgetGivesTheFullCachesNumbersExactly) {
  const Run full = GreedyOf({.policy = CachePolicy::kFull}, 100);
  for (const CachePolicy policy : {CachePolicy::kAuto, CachePolicy::kQevict, CachePolicy::kEvict}) {
    for (const char* budget : {"1GiB", "100%"}) {
      const Run tiered = GreedyOf(Cache(policy, budget), 100);
      EXPECT_EQ(tiered.tokens, full.tokens) << budget;
      EXPECT_EQ(tiered.last_logits, full.last_logits) << budget;
    }
  }
}

TEST_P(TieredEngineTest, WhatHoldsEveryTokenInInt8IsTheFullInt8CacheExactly) {
  CacheConfig config{.policy = CachePolicy::kFull, .kv_type = KvType::kQ8};
  const Run full = GreedyOf(config, 60);
  EXPECT_NE(full.last_logits, GreedyOf({.policy = CachePolicy::kFull}, 60).last_logits);
  for (const char* budget : {"1GiB", "60%"}) {
    config = Cache(CachePolicy::kAuto, budget);
    config.kv_type = KvType::kQ8;
    const Run tiered = GreedyOf(config, 60);
    EXPECT_EQ(tiered.tokens, full.tokens) << budget;
    EXPECT_EQ(tiered.last_logits, full.last_logits) << budget;
  }
}

TEST_P(TieredEngineTest, AnInt8CacheTakesTheBytesOfItsRowsAndCanBeCut) {
  const auto engine = Load({.policy = CachePolicy::kFull, .kv_type = KvType::kQ8});
  const KvShape shape = engine->hyperparameters().kv_shape();
  const auto sequence = engine->NewSequence(Context()).value();
  uint64_t bytes = 0;
  for (uint32_t l = 0; l < shape.layers; ++l)
    bytes += LayerBytes(shape, LayerId(l), Context(), kTieredChunk, KvType::kQ8);
  EXPECT_EQ(sequence->kv_usage().used_bytes, AlignedBuffer::RoundedBytes(bytes));
  EXPECT_EQ(sequence->kv_usage().full_f16_bytes, FullCacheBytes(shape, Context()));
  // A full sequence is f16 whatever the engine's cache.
  EXPECT_NE(engine->NewFullSequence(64).value()->kv().View(LayerId(0), KvHeadId(0)).k, nullptr);
  if (HasRings()) return;  // which cannot go back
  const std::vector<Token> prompt = Prompt(150);
  std::vector<float> before, after;
  ASSERT_TRUE(engine->Prefill(*sequence, std::span(prompt).first(90), &before));
  ASSERT_TRUE(engine->Prefill(*sequence, std::span(prompt).subspan(90), nullptr));
  ASSERT_TRUE(sequence->Truncate(64));
  ASSERT_TRUE(engine->Prefill(*sequence, std::span(prompt).subspan(64, 26), &after));
  EXPECT_EQ(after, before);
}

// Codes of int8 rows, promotions back to them, evictions, whatever the prompt's way in.
TEST_P(TieredEngineTest, Int8TiersRouteWithinTheirBudget) {
  if (HasRings()) GTEST_SKIP() << "codes come in slabs, more than its one routed layer ever has";
  for (const PrefillMode prefill : {PrefillMode::kExact, PrefillMode::kStream}) {
    CacheConfig config = Cache(CachePolicy::kQevict, "45%");
    config.kv_type = KvType::kQ8;
    config.prefill = prefill;
    const auto engine = Load(config);
    const auto sequence = engine->NewSequence(Context()).value();
    const Run run = Greedy(*engine, *sequence, 60);
    for (const float logit : run.last_logits) ASSERT_TRUE(std::isfinite(logit));
    EXPECT_GT(sequence->kv_usage().tiers.demotions, 0u);
    EXPECT_EQ(GreedyOf(config, 60, 1).last_logits, run.last_logits);
  }
}

TEST_P(TieredEngineTest, APromptThatPassesLayerByLayerGivesTheFullCachesLogitsExactly) {
  const Run full = GreedyOf({.policy = CachePolicy::kFull}, 0);
  const Run tiered = GreedyOf(Cache(CachePolicy::kAuto, Tight()), 0);
  EXPECT_EQ(tiered.prompt_logits, full.prompt_logits);
}

TEST_P(TieredEngineTest, TheNumberOfThreadsDoesNotChangeTheNumbers) {
  CacheConfig voted_by_all = RoomForSome();
  voted_by_all.scoring_choice.prior_tokens = kAllTokens;
  for (CacheConfig cache : {Cache(CachePolicy::kQevict, Tight()), voted_by_all}) {
    for (const PrefillMode prefill : {PrefillMode::kExact, PrefillMode::kStream}) {
      cache.prefill = prefill;
      const Run one = GreedyOf(cache, 60, 1);
      for (const uint32_t threads : {2u, 3u}) {
        const Run more = GreedyOf(cache, 60, threads);
        EXPECT_EQ(more.tokens, one.tokens);
        EXPECT_EQ(more.last_logits, one.last_logits);
      }
    }
  }
}

TEST_P(TieredEngineTest, PureEvictionCodesNothing) {
  CacheConfig cache = RoomForSome();
  for (const PrefillMode prefill : {PrefillMode::kExact, PrefillMode::kStream}) {
    cache.prefill = prefill;
    const auto engine = Load(cache);
    const auto sequence = engine->NewSequence(Context()).value();
    const Run run = Greedy(*engine, *sequence, 200);  // every step checks the budget
    const KvUsage usage = sequence->kv_usage();
    EXPECT_EQ(usage.tiers.encoded, 0u);
    EXPECT_EQ(usage.tiers.demotions, 0u);
    EXPECT_EQ(usage.quantized_bytes, 0u);
    EXPECT_GT(usage.tiers.evictions, 0u);
    EXPECT_GT(usage.tiers.full_windows, 0u);
    EXPECT_LE(usage.peak_bytes, usage.limit_bytes);
    EXPECT_EQ(GreedyOf(cache, 200, 1).last_logits, run.last_logits);
  }
}

TEST_P(TieredEngineTest, AutoSpendsWhatIsLeftOfABudgetOnBitsUnlessTheyWereAskedFor) {
  const auto usage = [this](const CacheConfig& cache) {
    const auto engine = Load(cache);
    const auto sequence = engine->NewSequence(Context()).value();
    Greedy(*engine, *sequence, 100);  // every step checks the budget
    const KvUsage used = sequence->kv_usage();
    EXPECT_GT(used.tiers.quantized_windows, 0u);
    EXPECT_EQ(used.tiers.evicted_windows, 0u);
    return used;
  };
  CacheConfig cache = Cache(CachePolicy::kAuto, Tight());
  const KvUsage open = usage(cache);
  cache.key_bits = 3;
  const KvUsage asked = usage(cache);
  EXPECT_GT(open.code_bits, asked.code_bits);
  EXPECT_GT(open.used_bytes, asked.used_bytes);
  cache.key_bits.reset();
  cache.value_bits = 2;
  EXPECT_EQ(usage(cache).code_bits, asked.code_bits);
  cache.value_bits.reset();
  cache.policy = CachePolicy::kQuant;
  EXPECT_EQ(usage(cache).code_bits, asked.code_bits);
}

TEST_P(TieredEngineTest, TheScoringThatWasChosenDecidesWhatStays) {
  CacheConfig cache = RoomForSome();
  const Run plain = GreedyOf(cache, 60);
  cache.scoring_choice = {.when = ScoreWhen::kEvent,
                          .prior_tokens = 7,
                          .group = GroupMass::kMax,
                          .per_voter = true,
                          .value_weighted = true};
  const auto engine = Load(cache);
  const auto sequence = engine->NewSequence(Context()).value();
  EXPECT_EQ(ScoringName(sequence->kv().scoring()),
            "event, prior of 7 tokens, max, by age, by values");
  const Run chosen = Greedy(*engine, *sequence, 60);
  EXPECT_EQ(chosen.prompt_logits, plain.prompt_logits);
  EXPECT_NE(chosen.last_logits, plain.last_logits);
}

TEST_P(TieredEngineTest, AStreamedPromptNeedsAPieceBesideTheBudget) {
  CacheConfig cache = Cache(CachePolicy::kAuto, Tight());
  cache.prefill = PrefillMode::kStream;
  const auto engine = Load(cache);
  const auto sequence = engine->NewSequence(Context()).value();
  Greedy(*engine, *sequence, 1);
  const KvUsage usage = sequence->kv_usage();
  EXPECT_GT(usage.staging_peak_bytes, 0u);
  const KvShape shape = engine->hyperparameters().kv_shape();
  const bool unpacks = LayerProducts::Create(Products::kFastest, 1) != nullptr;
  const uint64_t piece = unpacks ? 4 * kTieredChunk : kTieredChunk;
  // Behind sinks, local zone and open window, 4 + 32 + 2 * 8 tokens; whole blocks and pages.
  EXPECT_LE(usage.staging_peak_bytes,
            RoutedLayers(shape) * shape.layer_token_bytes() * (piece + 52 + 16) + 4096);
}

TEST_P(TieredEngineTest, ACancelledPromptLeavesAnEmptySequenceThatCanBeUsed) {
  const CacheConfig cache = Cache(CachePolicy::kAuto, Tight());
  const auto engine = Load(cache);
  const auto sequence = engine->NewSequence(Context()).value();
  std::atomic<int> asked{0};
  std::vector<float> logits;
  const Status status =
      engine->Prefill(*sequence, Prompt(300), &logits, {}, [&asked] { return ++asked > 120; });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(sequence->size_tokens(), 0u);
  EXPECT_EQ(Greedy(*engine, *sequence, 40).tokens, GreedyOf(cache, 40).tokens);
}

TEST(DamagedWeightsTest, LogitsThatAreNoNumbersAreAnErrorInStepsAndInPrompts) {
  TinyModelConfig config{.family = Family::kQwen2};
  config.edit_tensors = [](std::vector<TinyTensor>& tensors) {
    std::ranges::find(tensors, "output_norm.weight", &TinyTensor::name)->mean = NAN;
  };
  const TinyModelFile tiny(config);
  const auto engine =
      Engine::Load({.model_path = tiny.path(), .threads = 1, .prefill_chunk = kTieredChunk})
          .value();
  const auto sequence = engine->NewSequence(1024).value();
  std::vector<float> logits;
  for (const size_t tokens : {1u, 20u, 600u}) {
    const Status status = engine->Prefill(*sequence, RandomTokens(config, tokens, 3), &logits);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kBadFile);
  }
}

TEST_P(TieredEngineTest, ACancelledPieceGivesItsRoomBack) {
  CacheConfig cache = Cache(CachePolicy::kAuto, Tight());
  cache.prefill = PrefillMode::kStream;
  const auto engine = Load(cache);
  const auto sequence = engine->NewSequence(Context()).value();
  std::vector<float> logits;
  for (const int calls : {1, 20, 120}) {
    std::atomic<int> asked{0};
    const Status status = engine->Prefill(*sequence, Prompt(300), &logits, {},
                                          [&asked, calls] { return ++asked > calls; });
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
    EXPECT_EQ(sequence->kv().staging_bytes(), 0u);
    ASSERT_TRUE(sequence->Truncate(0).ok());
  }
  EXPECT_EQ(Greedy(*engine, *sequence, 40).tokens, GreedyOf(cache, 40).tokens);
}

TEST_P(TieredEngineTest, AnotherPromptFollowsTheFirst) {
  const auto engine = Load(Cache(CachePolicy::kAuto, Tight()));
  const auto sequence = engine->NewSequence(Context()).value();
  Greedy(*engine, *sequence, 10);
  std::vector<float> logits;
  const Status status = engine->Prefill(*sequence, Prompt(100), &logits);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(sequence->size_tokens(), 410u);
  EXPECT_TRUE(std::ranges::all_of(logits, [](float v) { return std::isfinite(v); }));
}

INSTANTIATE_TEST_SUITE_P(Families, TieredEngineTest, ::testing::ValuesIn(TinyFamilies(64)),
                         [](const auto& test) { return test.param.name; });

class CodecTablesTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Engine>> Load() const {
    CacheConfig cache;
    cache.policy = CachePolicy::kQuant;
    cache.tables_folder = folder_.path().string();
    return Engine::Load({.model_path = tiny_.path(), .threads = 2, .cache = cache}, progress_);
  }
  std::filesystem::path OnlyFile() const {
    return std::filesystem::directory_iterator(folder_.path())->path();
  }
  const TemporaryFolder folder_;
  const TinyModelFile tiny_{TinyFamilies(64)[0].config};
  mutable int measured_ = 0;
  const ProgressFn progress_ = [this](uint32_t, uint32_t) { ++measured_; };
};

TEST_F(CodecTablesTest, AreMeasuredOnceAndKept) {
  ASSERT_TRUE(Load());
  EXPECT_GT(measured_, 0);
  measured_ = 0;
  ASSERT_TRUE(Load());
  EXPECT_EQ(measured_, 0);
}

TEST_F(CodecTablesTest, AreRefusedWhenTheFileIsCutShortOrAnyBitOfItIsFlipped) {
  ASSERT_TRUE(Load());
  const std::filesystem::path path = OnlyFile();
  std::ifstream file(path, std::ios::binary);
  const std::string whole(std::istreambuf_iterator<char>(file), {});
  const auto expect_refused = [&](const std::string& content) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
    const auto engine = Load();
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().code, ErrorCode::kBadFile);
    EXPECT_NE(engine.error().message.find("delete it"), std::string::npos);
  };
  expect_refused("");
  expect_refused(whole.substr(0, whole.size() / 2));
  for (size_t at = 0; at < whole.size(); at += whole.size() / 13) {
    std::string flipped = whole;
    flipped[at] = char(flipped[at] ^ 0x10);
    expect_refused(flipped);
  }
}

// A folder, a device without an end, a pipe that nobody writes to.
TEST_F(CodecTablesTest, AreRefusedWhereThereIsNoFile) {
  ASSERT_TRUE(Load());
  const std::filesystem::path path = OnlyFile();
  const auto expect_refused = [&] {
    const auto engine = Load();
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().code, ErrorCode::kBadFile);
    EXPECT_NE(engine.error().message.find("delete it"), std::string::npos);
    std::filesystem::remove(path);
  };
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  expect_refused();
  std::filesystem::create_symlink("/dev/zero", path);
  expect_refused();
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  expect_refused();
}

TEST_F(CodecTablesTest, AreNotMeasuredWhereTheyCannotBeKept) {
  std::ofstream(folder_.path() / "file") << "x";
  CacheConfig cache;
  cache.policy = CachePolicy::kQuant;
  cache.tables_folder = (folder_.path() / "file" / "tables").string();
  const auto engine =
      Engine::Load({.model_path = tiny_.path(), .threads = 2, .cache = cache}, progress_);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::kIo);
  EXPECT_NE(engine.error().message.find("Not a directory"), std::string::npos)
      << engine.error().message;
  EXPECT_NE(engine.error().message.find("QEVICT_CACHE"), std::string::npos);
  EXPECT_EQ(measured_, 0);
}

TEST_F(CodecTablesTest, AreNotNeededByACacheWithoutCodes) {
  EngineConfig config{.model_path = tiny_.path(), .threads = 2};
  config.cache.policy = CachePolicy::kEvict;
  config.cache.budget = KvBudget{.share = 0.9};
  config.cache.tables_folder = folder_.path().string();
  const auto engine = Engine::Load(config, progress_);
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_EQ((*engine)->codec(), nullptr);
  EXPECT_TRUE((*engine)->NewSequence(2048));
  EXPECT_EQ(measured_, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  config.fit_codec = true;  // for those who measure codecs with it
  const auto fitted = Engine::Load(config, progress_);
  ASSERT_TRUE(fitted) << fitted.error().message;
  EXPECT_NE((*fitted)->codec(), nullptr);
  EXPECT_GT(measured_, 0);
}

TEST_F(CodecTablesTest, MeasuringCanBeCancelled) {
  CacheConfig cache;
  cache.policy = CachePolicy::kQuant;
  cache.tables_folder = folder_.path().string();
  const auto engine =
      Engine::Load({.model_path = tiny_.path(), .threads = 2, .prefill_chunk = 32, .cache = cache},
                   progress_, [this] { return measured_ >= 2; });
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::kCancelled);
  EXPECT_LE(measured_, 3);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST(CacheConfigTest, APolicyComesWithItsScoring) {
  CacheConfig cache{.policy = CachePolicy::kQevict};
  EXPECT_EQ(ScoringName(cache.scoring()), "step, prior of all tokens, mean");
  EXPECT_EQ(cache.scoring().prior_pooling, MassPooling::kNone);
  for (const CachePolicy policy : {CachePolicy::kAuto, CachePolicy::kEvict}) {
    cache.policy = policy;
    EXPECT_EQ(ScoringName(cache.scoring()), "step, prior of 32 tokens, mean");
    EXPECT_EQ(cache.scoring().prior_pooling, MassPooling::kNeighbours);
  }
  cache.scoring_choice.prior_tokens = kAllTokens;
  EXPECT_EQ(cache.scoring().prior_pooling, MassPooling::kNone);
}

TEST(CacheConfigTest, APriorIsAllTokensOrANumberOfThem) {
  EXPECT_EQ(ParsePriorTokens("all"), kAllTokens);
  EXPECT_EQ(ParsePriorTokens("64"), 64u);
  for (const char* text : {"", "0", "-1", "ALL", "5x", "99999999999"}) {
    EXPECT_FALSE(ParsePriorTokens(text)) << text;
  }
}

TEST(CacheConfigTest, AScoringThatWouldDoNothingIsRefused) {
  CacheConfig cache{.policy = CachePolicy::kAuto, .budget = KvBudget{.share = 0.2}};
  cache.scoring_choice.group = GroupMass::kMax;
  EXPECT_TRUE(cache.Validate());
  for (const CachePolicy policy : {CachePolicy::kFull, CachePolicy::kQuant}) {
    cache.policy = policy;
    const Status status = cache.Validate();
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(status.error().message.find("--score-group does nothing with --policy " +
                                          std::string(CachePolicyName(policy))),
              std::string::npos);
  }
  cache.policy = CachePolicy::kEvict;
  cache.budget.reset();
  ASSERT_FALSE(cache.Validate());
  EXPECT_NE(cache.Validate().error().message.find("without --kv-budget"), std::string::npos);
}

TEST(CacheConfigTest, ABudgetIsAShareOrBytes) {
  EXPECT_DOUBLE_EQ(ParseKvBudget("20%")->share, 0.2);
  EXPECT_EQ(ParseKvBudget("512MiB")->bytes, 512u << 20);
  EXPECT_EQ(ParseKvBudget("1.5KiB")->bytes, 1536u);
  EXPECT_EQ(ParseKvBudget("1000000")->bytes, 1000000u);
  for (const char* text : {"", "%", "0%", "101%", "-5%", "0", "-1", "5 MiB", "1XB", "nan", "inf",
                           "1e300GiB", "20%%", "MiB"}) {
    EXPECT_FALSE(ParseKvBudget(text)) << text;
  }
  const auto bare = ParseKvBudget("20");
  ASSERT_FALSE(bare);
  EXPECT_NE(bare.error().message.find("did you mean 20%?"), std::string::npos);
}

}  // namespace
}  // namespace qevict::test
