// Attention and the builders of the codec's tables run on the threads of a model's graph, where a
// failed allocation would end the program: all the room that they need is made before. And what
// makes it fails with a status, whichever allocation it is. A program of its own, because it
// replaces operator new.
#include <gtest/gtest.h>

#include <optional>

#include "codec/table_builder.h"
#include "tests/cache/tiered_case.h"
#include "tests/support/failing_new.h"

namespace qevict::test {
namespace {

TieredConfig Config(GroupMass group) {
  return {.shape = SmallShape(32, /*swa=*/true),
          .geometry = {.omega = 8, .sinks = 4, .local = 32},
          .capacity = {.full = 6, .quantized = 140},
          .capacity_tokens = 2400,
          .max_batch_tokens = 96,
          .scoring = {.prior_tokens = kAllTokens, .group = group},
          .before_attend = [] { counts = true; },
          .after_attend = [] { counts = false; }};
}

uint32_t BatchTokens(uint32_t step) { return step < 12 ? 96 - step : step % 30 == 0 ? 60 : 1; }

TEST(NoAllocationTest, AttentionAllocatesNothingInPromptsStepsAndBothTiers) {
  for (const GroupMass group : {GroupMass::kMean, GroupMass::kMax}) {
    TieredCase sequence(Config(group));
    allocations = 0;
    uint32_t codes = 0;
    for (uint32_t step = 0; step < 120; ++step) {
      sequence.Step(BatchTokens(step));
      ASSERT_EQ(allocations, 0) << "step " << step;
      codes = uint32_t(sequence.kv().windows(LayerId(1), KvHeadId(0)).attended().size());
    }
    EXPECT_GT(codes, 100u);
    // What counts does count.
    counts = true;
    const std::vector<int> something(3);
    counts = false;
    EXPECT_EQ(allocations, 1);
  }
}

TEST(NoAllocationTest, ABuilderOfTablesAllocatesNothingForItsTokens) {
  const RopePairs pairs{
      .head_dim = 32, .layout = RopePairs::Layout::kHalves, .angles = std::vector(16, 0.25)};
  const MeanRotation blocks(pairs, Position(4), 32);
  const Rotation rotation(32);
  TableBuilder builder({32, 3, 2}, &blocks, &rotation);
  const std::vector<float> row(32, 0.5f);
  allocations = 0;
  for (uint32_t t = 0; t < 3 * TableBuilder::kSampleTokens; ++t) {
    const PositionTurn turn(pairs, Position(t));
    counts = true;
    builder.AddToken(row.data(), row.data(), turn);
    builder.AddQuery(row.data());
    counts = false;
  }
  EXPECT_EQ(allocations, 0);
}

TEST(NoAllocationTest, AVectorThatFindsNoRoomFailsASequenceThatIsMadeAndLeavesNothing) {
  TieredCase sequence(Config(GroupMass::kMean));
  const uint64_t before = AlignedBuffer::MappedBytes();
  const KvShape shape = SmallShape(32, /*swa=*/true);
  const SequenceKv::Config config = sequence.SequenceConfig(sequence.plan());
  const uint32_t failures = FailEveryAllocation(
      [&]() -> Status {
        const auto kv = SequenceKv::Create(shape, config);
        return kv ? Status() : tl::unexpected(kv.error());
      },
      [&] { EXPECT_EQ(AlignedBuffer::MappedBytes(), before); });
  EXPECT_GT(failures, 5u);
}

// Beside a sequence that never fails.
TEST(NoAllocationTest, AVectorThatFindsNoRoomFailsABatchAndTheNextAttemptGoesOn) {
  TieredCase twin(Config(GroupMass::kMean)), sequence(Config(GroupMass::kMean));
  std::optional<BatchAttention> attention;
  const auto new_attention = [&] {  // room that an attempt has made would stay
    attention.emplace(SmallShape(32, /*swa=*/true), SelectIsa().value(), 2);
  };
  uint32_t batches = 0, bindings = 0;
  for (uint32_t step = 0; step < 60; ++step) {
    const uint32_t tokens = BatchTokens(step);
    const CacheSnapshot before = Snapshot(sequence.kv());
    batches += FailEveryAllocation(
        [&] { return sequence.kv().BeginBatch(tokens); },
        [&] {
          CacheSnapshot after = Snapshot(sequence.kv());
          after.used_bytes = before.used_bytes;  // slabs that were taken stay with the pool
          EXPECT_EQ(after, before) << "step " << step;
          EXPECT_EQ(sequence.kv().staging_bytes(), 0u);
        });
    const BatchSlice slice{.kv = &sequence.kv(), .tokens = tokens};
    new_attention();
    bindings += FailEveryAllocation([&] { return attention->Bind({&slice, 1}); }, new_attention);
    ASSERT_TRUE(sequence.Finish(tokens) == twin.Step(tokens)) << "step " << step;
  }
  EXPECT_GT(batches, 50u);
  EXPECT_GT(bindings, 50u);
}

TEST(NoAllocationTest, AVectorThatFindsNoRoomFailsAPromptAndTheNextAttemptGoesOn) {
  TieredCase twin(Config(GroupMass::kMean));
  const std::vector<float> expected = twin.PromptByLayers(700);
  std::optional<TieredCase> sequence(Config(GroupMass::kMean));
  const uint32_t failures =
      FailEveryAllocation([&] { return sequence->kv().BeginPrompt(700); },
                          [&] {
                            EXPECT_EQ(sequence->kv().staging_bytes(), 0u);
                            EXPECT_TRUE(sequence->PromptByLayers(700) == expected);
                            sequence.emplace(Config(GroupMass::kMean));  // without that room
                          });
  EXPECT_GT(failures, 5u);
}

TEST(NoAllocationTest, APoolThatFindsNoRoomForAnotherSlabKeepsThePagesThatItHas) {
  ByteBudget budget(uint64_t{1} << 20);
  std::optional<PagePool> pool;
  const uint32_t failures = FailEveryAllocation(
      [&]() -> Status {
        pool.emplace(PagePool::Config{.page_bytes = 1024, .slab_pages = 8, .most_pages = 16},
                     budget);
        try {
          return pool->Reserve(9);
        } catch (const std::bad_alloc&) {
          return Fail(ErrorCode::kOutOfMemory, "no room");
        }
      },
      [&] {
        EXPECT_EQ(pool->used_bytes(), 0u);
        EXPECT_EQ(pool->free_pages() * 1024, pool->resident_bytes());
        EXPECT_EQ(budget.used_bytes(), pool->resident_bytes());
      });
  EXPECT_GE(failures, 2u);
}

}  // namespace
}  // namespace qevict::test
