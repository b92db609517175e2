// What can fail fails before anything has changed.
#include <gtest/gtest.h>

#include "tests/cache/tiered_case.h"

namespace qevict::test {
namespace {

TieredConfig Config(bool swa) {
  return {.shape = SmallShape(32, swa),
          .geometry = {.omega = 8, .sinks = 4, .local = 32},
          .capacity = {.full = 6, .quantized = 140},
          .capacity_tokens = 2400,
          .max_batch_tokens = 96};
}

// Slabs that were taken before the failure stay with the pool; they are free, and counted.
CacheSnapshot WithoutUsedBytes(CacheSnapshot snapshot) {
  snapshot.used_bytes = 0;
  return snapshot;
}

// Fails every allocation of every BeginBatch once, beside a sequence that never fails.
TEST(TieredFailureTest, MemoryThatRunsOutAtAnyCallChangesNothingAndTheNextAttemptGoesOn) {
  for (bool swa : {false, true}) {
    TieredCase twin(Config(swa)), sequence(Config(swa));
    uint32_t failures = 0;
    for (uint32_t step = 0; step < 160; ++step) {
      const uint32_t tokens = step < 12 ? 96 - step : step % 30 == 0 ? 60 : 1;
      const CacheSnapshot before = Snapshot(sequence.kv());
      const std::vector<uint16_t> contents = sequence.Contents();
      for (uint32_t allowed = 0;; ++allowed) {
        ASSERT_LT(allowed, 20u);
        const FailingAllocation failing(allowed);
        const Status status = sequence.kv().BeginBatch(tokens);
        if (status.ok()) {
          ASSERT_FALSE(failing.has_failed());
          break;
        }
        ++failures;
        ASSERT_EQ(status.error().code, ErrorCode::kOutOfMemory);
        ASSERT_TRUE(failing.has_failed());
        const CacheSnapshot after = Snapshot(sequence.kv());
        ASSERT_EQ(WithoutUsedBytes(after), WithoutUsedBytes(before)) << "step " << step;
        ASSERT_EQ(ValidateInvariants(after), std::vector<std::string>());
        ASSERT_TRUE(sequence.Contents() == contents) << "step " << step;
      }
      ASSERT_TRUE(sequence.Finish(tokens) == twin.Step(tokens)) << "step " << step;
    }
    // The codec's table of means, slabs of codes, and the staging region of a prompt.
    EXPECT_GE(failures, 8u);
  }
}

TEST(TieredFailureTest, ABudgetThatRefusesASlabChangesNothingAndAShorterSequenceWorks) {
  TieredCase sequence(Config(false));
  // A limit below the plan, as no planner makes one: the first slab of codes is refused.
  sequence.LimitTo(sequence.plan().full_bytes + sequence.plan().ledger_bytes);
  for (int batch = 0; batch < 4; ++batch) sequence.Step(8);
  ASSERT_EQ(sequence.kv().size_tokens(), 32u);
  const CacheSnapshot before = Snapshot(sequence.kv());
  const std::vector<uint16_t> contents = sequence.Contents();
  for (int attempt = 0; attempt < 3; ++attempt) {
    const Status status = sequence.kv().BeginBatch(96);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kBudgetExceeded);
    EXPECT_EQ(Snapshot(sequence.kv()), before);
    EXPECT_TRUE(sequence.Contents() == contents);
  }
  sequence.Step(1, Compared::kWithOracle);  // needs no code
  EXPECT_LT(sequence.largest_f16_error(), 5e-5);
  ASSERT_TRUE(sequence.kv().Truncate(0).ok());
  sequence.Step(30);
  EXPECT_EQ(sequence.kv().size_tokens(), 30u);
}

TEST(TieredFailureTest, ACacheThatCannotBeAllocatedLeavesNothingBehind) {
  TieredCase sequence(Config(true));
  for (uint32_t allowed = 0;; ++allowed) {
    ASSERT_LT(allowed, 10u);
    const uint64_t before = AlignedBuffer::MappedBytes();
    {
      const FailingAllocation failing(allowed);
      const auto kv = sequence.NewSequence(sequence.plan());
      if (kv.has_value()) {
        EXPECT_EQ(allowed, 2u);  // the full tier and the ledger
        break;
      }
      EXPECT_EQ(kv.error().code, ErrorCode::kOutOfMemory);
    }
    EXPECT_EQ(AlignedBuffer::MappedBytes(), before);
  }
}

}  // namespace
}  // namespace qevict::test
