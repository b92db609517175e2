#include "cache/sequence_kv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace qevict {
namespace {

// Its claims would outlive the budget that they point to.
static_assert(std::is_nothrow_move_constructible_v<SequenceKv>);
static_assert(!std::is_move_assignable_v<SequenceKv>);

KvShape SwaShape(uint32_t window) {
  return {.layers = 2,
          .kv_heads = 2,
          .group = 1,
          .head_dim = 16,
          .swa_window = window,
          .swa_layer = {true, false}};
}

SequenceKv Make(const KvShape& shape, uint32_t capacity, uint32_t batch) {
  return SequenceKv::CreateFull(shape, capacity, batch).value();
}

void Append(SequenceKv& kv, uint32_t tokens) {
  ASSERT_TRUE(kv.BeginBatch(tokens));
  kv.Commit();
}

constexpr LayerId kSwaLayer{0}, kFullLayer{1};

TEST(SequenceKvTest, ASlidingWindowLayerHoldsItsWindowAndOneBatchAndOthersHoldEverything) {
  const SequenceKv kv = Make(SwaShape(32), 4096, 64);
  EXPECT_EQ(kv.View(kSwaLayer, KvHeadId(0)).slots, 96u);
  EXPECT_EQ(kv.View(kFullLayer, KvHeadId(0)).slots, 4096u);
}

TEST(SequenceKvTest, TheBytesOfLayersAreWhatIsAllocated) {
  KvShape shape = SwaShape(33);
  shape.kv_heads = 3;
  EXPECT_EQ(LayerBytes(shape, kSwaLayer, 1001, 64), 112u * 3 * 16 * 2 * sizeof(F16));  // 33 + 64
  EXPECT_EQ(LayerBytes(shape, kFullLayer, 1001, 64), 1008u * 3 * 16 * 2 * sizeof(F16));
  const uint64_t bytes =
      LayerBytes(shape, kSwaLayer, 1001, 64) + LayerBytes(shape, kFullLayer, 1001, 64);
  const uint64_t allocated = Make(shape, 1001, 64).budget().used_bytes();
  EXPECT_GE(allocated, bytes);
  EXPECT_LT(allocated, bytes + 65536);  // one page, whatever its size
}

TEST(SequenceKvTest, HeadsAndLayersDoNotOverlap) {
  SequenceKv kv = Make(SwaShape(16), 64, 16);
  const size_t floats = 32 * 16;  // a ring of 32 slots
  const auto keys = [&](LayerId layer, uint32_t head) {
    return kv.Rows(layer, KvHeadId(head)).k();
  };
  const auto values = [&](LayerId layer, uint32_t head) {
    return kv.Rows(layer, KvHeadId(head)).v();
  };
  EXPECT_EQ(keys(kSwaLayer, 1) - keys(kSwaLayer, 0), ptrdiff_t(floats));
  EXPECT_EQ(values(kSwaLayer, 0) - keys(kSwaLayer, 1), ptrdiff_t(floats));
  EXPECT_EQ(keys(kFullLayer, 0) - values(kSwaLayer, 1), ptrdiff_t(floats));
}

// 48 channels: two groups of 32 and 16, and scales of 32 bytes per block and group.
TEST(SequenceKvTest, Int8HeadsAndLayersDoNotOverlapAndTakeTheBytesOfTheirRows) {
  KvShape shape = SwaShape(16);
  shape.head_dim = 48;
  SequenceKv kv = SequenceKv::CreateFull(shape, 64, 16, KvType::kQ8).value();
  const uint8_t* next = nullptr;
  const auto expect = [&next](Q8Rows rows, size_t slots) {
    const auto* codes = reinterpret_cast<const uint8_t*>(rows.codes);
    EXPECT_TRUE(next == nullptr || codes == next);
    EXPECT_EQ(uintptr_t(codes) % 32, 0u);
    EXPECT_EQ(reinterpret_cast<const uint8_t*>(rows.scales), codes + slots * 48);
    next = codes + slots * KvRowBytes(KvType::kQ8, 48);
  };
  for (const LayerId layer : {kSwaLayer, kFullLayer}) {
    const size_t slots = kv.View(layer, KvHeadId(0)).slots;
    for (uint32_t h = 0; h < shape.kv_heads; ++h) expect(kv.Rows(layer, KvHeadId(h)).k8(), slots);
    for (uint32_t h = 0; h < shape.kv_heads; ++h) expect(kv.Rows(layer, KvHeadId(h)).v8(), slots);
  }
  const uint64_t bytes = LayerBytes(shape, kSwaLayer, 64, 16, KvType::kQ8) +
                         LayerBytes(shape, kFullLayer, 64, 16, KvType::kQ8);
  EXPECT_EQ(bytes, (32u + 64u) * shape.kv_heads * 2 * 52);
  EXPECT_EQ(kv.budget().used_bytes(), AlignedBuffer::RoundedBytes(bytes));
}

TEST(SequenceKvTest, ARangeThatWrapsInTheRingComesInTwoPartsThatCoverIt) {
  const SequenceKv kv = Make(SwaShape(32), 4096, 64);
  const auto parts = kv.Slots(kSwaLayer, 90, 130);
  EXPECT_EQ(parts[0].begin, 90u);
  EXPECT_EQ(parts[0].end, 96u);
  EXPECT_EQ(parts[0].first, 90u);
  EXPECT_EQ(parts[1].begin, 0u);
  EXPECT_EQ(parts[1].end, 34u);
  EXPECT_EQ(parts[1].first, 96u);
}

TEST(SequenceKvTest, AQueryOfASlidingWindowLayerSeesWindowTokensItsOwnIncluded) {
  const SequenceKv kv = Make(SwaShape(32), 4096, 64);
  EXPECT_EQ(kv.VisibleFrom(kSwaLayer, 31), 0u);
  EXPECT_EQ(kv.VisibleFrom(kSwaLayer, 32), 1u);
  EXPECT_EQ(kv.VisibleFrom(kSwaLayer, 100), 69u);
  EXPECT_EQ(kv.VisibleFrom(kFullLayer, 100), 0u);
}

TEST(SequenceKvTest, ABatchThatIsNotCommittedLeavesTheSize) {
  SequenceKv kv = Make(SwaShape(32), 4096, 64);
  Append(kv, 10);
  ASSERT_TRUE(kv.BeginBatch(64));
  EXPECT_EQ(kv.size_tokens(), 10u);
}

TEST(SequenceKvTest, TruncationWithinOneBatchWorksEvenAfterTheRingWrapped) {
  SequenceKv kv = Make(SwaShape(32), 4096, 64);
  for (int i = 0; i < 10; ++i) Append(kv, 64);
  EXPECT_TRUE(kv.Truncate(640 - 64).ok());
  EXPECT_EQ(kv.size_tokens(), 576u);
}

TEST(SequenceKvTest, TruncationBeyondWhatTheRingHoldsIsRefusedAndChangesNothing) {
  SequenceKv kv = Make(SwaShape(32), 4096, 64);
  for (int i = 0; i < 10; ++i) Append(kv, 64);
  const Status status = kv.Truncate(100);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("position 100"));
  EXPECT_EQ(kv.size_tokens(), 640u);
}

TEST(SequenceKvTest, AnAbandonedBatchCountsForWhatARingHasForgotten) {
  SequenceKv kv = Make(SwaShape(32), 4096, 64);
  for (int i = 0; i < 4; ++i) Append(kv, 64);
  ASSERT_TRUE(kv.BeginBatch(64));  // cancelled: its tokens overwrote the oldest slots
  EXPECT_TRUE(kv.Truncate(256).ok());
  EXPECT_FALSE(kv.Truncate(200).ok());
}

TEST(SequenceKvTest, WhatAnEmptySequenceAbandonedTakesNothingFromLaterOnes) {
  SequenceKv kv = Make(SwaShape(32), 4096, 64);
  ASSERT_TRUE(kv.BeginBatch(1000));
  kv.AbandonBatch();
  Append(kv, 30);
  EXPECT_TRUE(kv.Truncate(20).ok());
  ASSERT_TRUE(kv.BeginBatch(1000));
  kv.AbandonBatch();
  EXPECT_FALSE(kv.Truncate(10).ok());  // here the ring has lost them
}

TEST(SequenceKvTest, EverythingCanBeForgottenAtAnyTime) {
  SequenceKv kv = Make(SwaShape(32), 4096, 64);
  for (int i = 0; i < 10; ++i) Append(kv, 64);
  EXPECT_TRUE(kv.Truncate(0).ok());
  Append(kv, 64);
  EXPECT_TRUE(kv.Truncate(1).ok());
}

TEST(SequenceKvTest, ACacheLargerThanTheMachineIsRefused) {
  KvShape shape = SwaShape(0);
  shape.swa_layer.clear();
  shape.layers = 4096;
  shape.head_dim = 256;
  const auto kv = SequenceKv::CreateFull(shape, 1u << 24, 64);
  ASSERT_FALSE(kv.has_value());
  EXPECT_EQ(kv.error().code, ErrorCode::kOutOfMemory);
}

}  // namespace
}  // namespace qevict
