// An engine of which any one allocation fails: an error, nothing has changed, and the next attempt
// goes on. A program of its own, because it replaces operator new.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "support/temporary_folder.h"
#include "support/tiny_model.h"
#include "tests/support/failing_new.h"

namespace qevict::test {
namespace {

constexpr uint32_t kContext = 512;

class EngineMemoryTest : public ::testing::TestWithParam<PrefillMode> {
 protected:
  std::unique_ptr<Engine> Load() const {
    CacheConfig cache;
    cache.budget = KvBudget{.share = 0.6};
    cache.geometry = {.omega = 8, .sinks = 4, .local = 32};
    cache.prefill = GetParam();
    cache.tables_folder = tables_.path().string();
    return Engine::Load(
               {.model_path = tiny_.path(), .threads = 1, .prefill_chunk = 64, .cache = cache})
        .value();
  }
  std::vector<Token> Prompt(size_t tokens) const { return RandomTokens(kConfig, tokens, 7); }

  static inline const TinyModelConfig kConfig{.family = Family::kQwen2, .context = kContext};
  const TinyModelFile tiny_{kConfig};
  const TemporaryFolder tables_;
};

TEST_P(EngineMemoryTest, ASequenceThatFindsNoRoomIsNotMade) {
  const auto engine = Load();
  const uint32_t failures = FailEveryAllocation(
      [&]() -> Status {
        const auto sequence = engine->NewSequence(kContext);
        return sequence ? Status() : tl::unexpected(sequence.error());
      },
      [] {});
  EXPECT_GT(failures, 10u);
}

TEST_P(EngineMemoryTest, AStepThatFindsNoRoomChangesNothing) {
  const auto engine = Load();
  const std::vector<Token> tokens = Prompt(24);
  const auto twin = engine->NewSequence(kContext).value();
  const auto sequence = engine->NewSequence(kContext).value();
  std::vector<float> expected, logits;
  uint32_t failures = 0;
  for (const Token& token : tokens) {
    const auto run = [&](Sequence& into, std::vector<float>& out) {
      BatchItem item{.sequence = &into, .tokens = {&token, 1}, .logits_out = &out};
      return engine->Run({&item, 1}, {});
    };
    uint32_t before = 0;
    failures += FailEveryAllocation(
        [&] {
          before = sequence->size_tokens();
          return run(*sequence, logits);
        },
        [&] { EXPECT_EQ(sequence->size_tokens(), before); });
    // It succeeded at last, and before where it could do without what failed.
    ASSERT_GT(sequence->size_tokens(), twin->size_tokens());
    while (twin->size_tokens() < sequence->size_tokens()) ASSERT_TRUE(run(*twin, expected).ok());
    ASSERT_EQ(logits, expected);
  }
  EXPECT_GT(failures, 10u);
}

TEST_P(EngineMemoryTest, APromptThatFindsNoRoomLeavesWholePieces) {
  const auto engine = Load();
  const std::vector<Token> prompt = Prompt(400);
  const auto twin = engine->NewSequence(kContext).value();
  std::vector<float> expected, logits;
  ASSERT_TRUE(engine->Prefill(*twin, prompt, &expected).ok());
  auto sequence = engine->NewSequence(kContext).value();
  const uint32_t failures = FailEveryAllocation(
      [&] {
        return engine->Prefill(*sequence, std::span(prompt).subspan(sequence->size_tokens()),
                               &logits);
      },
      [&] {
        EXPECT_EQ(sequence->kv().staging_bytes(), 0u);
        EXPECT_EQ(sequence->size_tokens() % (4 * 64), 0u);
        sequence = engine->NewSequence(kContext).value();
      });
  EXPECT_GT(failures, 10u);
  EXPECT_EQ(logits, expected);
}

INSTANTIATE_TEST_SUITE_P(Modes, EngineMemoryTest,
                         ::testing::Values(PrefillMode::kExact, PrefillMode::kStream),
                         [](const auto& mode) {
                           return mode.param == PrefillMode::kExact ? "exact" : "stream";
                         });

}  // namespace
}  // namespace qevict::test
