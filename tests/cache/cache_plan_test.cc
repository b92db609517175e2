#include "cache/cache_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <regex>

#include "cache/sequence_kv.h"
#include "tests/cache/windows_case.h"

namespace qevict {
namespace {

constexpr TierSplit kSplits[] = {TierSplit::kFullOnly, TierSplit::kCodeHistory, TierSplit::kCodeAll,
                                 TierSplit::kFullHistory, TierSplit::kFullAndCodes};
constexpr TierSplit kTieredSplits[] = {TierSplit::kCodeHistory, TierSplit::kCodeAll,
                                       TierSplit::kFullHistory, TierSplit::kFullAndCodes};
constexpr ScoringConfig kPlain, kKeepsMost{.per_voter = true, .value_weighted = true};

KvShape Shape() {
  return {.layers = 3, .kv_heads = 2, .group = 2, .head_dim = 64, .swa_layer = {}};
}
KvShape ShapeWithRings() {
  return {.layers = 3,
          .kv_heads = 2,
          .group = 2,
          .head_dim = 64,
          .swa_window = 100,
          .swa_layer = {true, false, true}};
}

PlanRequest Request(TierSplit split, uint64_t limit_bytes) {
  return {.split = split,
          .geometry = {.omega = 8, .sinks = 4, .local = 60},
          .capacity_tokens = 9000,
          .max_batch_tokens = 128,
          .limit_bytes = limit_bytes};
}

// The limit that an error recommends, from its sentence.
std::optional<uint64_t> NamedBytes(const std::string& message) {
  std::smatch match;
  const std::regex named("(?:smallest that works for \\d+ tokens is|tokens takes) (\\d+) bytes");
  if (!std::regex_search(message, match, named)) return std::nullopt;
  return std::stoull(match[1]);
}

uint64_t SmallestLimit(const KvShape& shape, PlanRequest request) {
  request.limit_bytes = 1;
  const auto plan = PlanCache(shape, request);
  EXPECT_FALSE(plan.has_value());
  if (plan.has_value()) return 0;
  EXPECT_EQ(plan.error().code, ErrorCode::kBudgetExceeded);
  const auto bytes = NamedBytes(plan.error().message);
  EXPECT_TRUE(bytes.has_value()) << plan.error().message;
  return bytes.value_or(0);
}

TEST(CachePlanTest, TheSmallestBudgetOfTheErrorWorksAndOneByteLessDoesNot) {
  for (const KvShape& shape : {Shape(), ShapeWithRings()}) {
    for (TierSplit split : kSplits) {
      // Short sequences too: there a page of codes can cost more than what it would save.
      for (uint32_t capacity : {9000u, 1000u, 200u, 72u, 71u, 40u, 3u}) {
        SCOPED_TRACE("split " + std::to_string(int(split)) + ", " + std::to_string(capacity) +
                     " tokens, " + std::to_string(RoutedLayers(shape)) + " routed layers");
        PlanRequest request = Request(split, 0);
        request.capacity_tokens = capacity;
        const uint64_t smallest = SmallestLimit(shape, request);
        request.limit_bytes = smallest;
        EXPECT_TRUE(PlanCache(shape, request).has_value());
        request.limit_bytes = smallest - 1;
        const auto less = PlanCache(shape, request);
        ASSERT_FALSE(less.has_value());
        EXPECT_EQ(NamedBytes(less.error().message), smallest);
      }
    }
  }
}

TEST(CachePlanTest, CodeAllBytesIsTheSmallestBudgetForAllCodes) {
  for (uint32_t capacity : {9000u, 1000u, 200u, 40u}) {
    PlanRequest request = Request(TierSplit::kCodeAll, 1);
    request.capacity_tokens = capacity;
    EXPECT_EQ(CodeAllBytes(Shape(), request), SmallestLimit(Shape(), request)) << capacity;
  }
}

TEST(CachePlanTest, NoPlanGoesBeyondItsLimitAndMoreBytesNeverMeanFewerWindows) {
  for (const KvShape& shape : {Shape(), ShapeWithRings()}) {
    for (TierSplit split : kTieredSplits) {
      SCOPED_TRACE("split " + std::to_string(int(split)));
      const uint64_t smallest = SmallestLimit(shape, Request(split, 0));
      const uint64_t full_bytes = FullCacheBytes(shape, 9000);
      uint32_t last = 0;
      // In steps of less than a slab of codes; the last ones hold everything in full precision.
      for (uint64_t limit = smallest; limit < full_bytes + (1u << 20); limit += 50'001) {
        const auto plan = PlanCache(shape, Request(split, limit));
        ASSERT_TRUE(plan.has_value()) << limit;
        EXPECT_LE(plan->total_bytes(), limit);
        const uint32_t windows = plan->capacity.full + plan->capacity.quantized;
        EXPECT_GE(windows, last) << limit;
        last = windows;
      }
      EXPECT_EQ(last, Request(split, 0).geometry.history_windows(9000));
    }
  }
}

TEST(CachePlanTest, FullWindowsTakeTheirShareOfWhatTheHistoryMayUse) {
  const uint64_t limit = FullCacheBytes(Shape(), 9000) / 5;
  uint32_t last_full = 0, last_quantized = UINT32_MAX;
  for (float share : {0.0f, 0.1f, 0.3f, 0.7f, 1.0f}) {
    PlanRequest request = Request(TierSplit::kFullAndCodes, limit);
    request.full_share = share;
    const CachePlan plan = PlanCache(Shape(), request).value();
    EXPECT_LE(plan.total_bytes(), limit);
    EXPECT_EQ(plan.retained_windows, plan.capacity.full);
    EXPECT_EQ(plan.capacity.full == 0, share == 0.0f);
    EXPECT_GE(plan.capacity.full, last_full);
    EXPECT_LE(plan.capacity.quantized, last_quantized);
    last_full = plan.capacity.full;
    last_quantized = plan.capacity.quantized;
  }
}

TEST(CachePlanTest, Int8TokensTakeTheBytesOfTheirRowsAndLeaveRoomForMore) {
  for (const KvShape& shape : {Shape(), ShapeWithRings()}) {
    for (TierSplit split : {TierSplit::kFullHistory, TierSplit::kFullAndCodes}) {
      PlanRequest request = Request(split, FullCacheBytes(shape, 9000) / 4);
      const CachePlan f16 = PlanCache(shape, request).value();
      request.kv_type = KvType::kQ8;
      const CachePlan q8 = PlanCache(shape, request).value();
      EXPECT_EQ(q8.kv_type, KvType::kQ8);
      EXPECT_LE(q8.total_bytes(), request.limit_bytes);
      const uint64_t slots = uint64_t{q8.full_slots} * RoutedLayers(shape) +
                             uint64_t{RingSlots(shape, 9000, request.max_batch_tokens)} *
                                 (shape.layers - RoutedLayers(shape));
      EXPECT_EQ(q8.full_bytes,
                AlignedBuffer::RoundedBytes(slots * shape.layer_token_bytes(KvType::kQ8)));
      EXPECT_GE(q8.capacity.full + q8.capacity.quantized,
                f16.capacity.full + f16.capacity.quantized);
      EXPECT_GT(q8.capacity.full, f16.capacity.full);
      // A budget of all tokens in int8 needs neither codes nor evictions.
      request.limit_bytes = FullCacheBytes(shape, 9000, KvType::kQ8) + (1u << 20);
      EXPECT_EQ(PlanCache(shape, request)->capacity.full, request.geometry.history_windows(9000));
      EXPECT_EQ(PlanCache(shape, request)->code_bytes, 0u);
    }
  }
}

TEST(CachePlanTest, ABudgetForEverythingNeedsNoCodes) {
  for (TierSplit split : kSplits) {
    const CachePlan plan = PlanCache(Shape(), Request(split, UINT64_MAX / 2)).value();
    EXPECT_EQ(plan.capacity.full, Request(split, 0).geometry.history_windows(9000));
    EXPECT_EQ(plan.code_windows(), 0u);
    EXPECT_EQ(plan.code_bytes, 0u);
  }
}

TEST(CachePlanTest, AllCodesMeansThatNothingIsEvicted) {
  const PlanRequest request = Request(TierSplit::kCodeAll, 0);
  const uint64_t bytes = CodeAllBytes(Shape(), request);
  const CachePlan plan = PlanCache(Shape(), Request(TierSplit::kCodeAll, bytes)).value();
  EXPECT_EQ(plan.capacity.quantized, request.geometry.history_windows(9000));
  EXPECT_EQ(plan.capacity.full, 0u);
  // The same bytes do for the split that may evict.
  EXPECT_EQ(PlanCache(Shape(), Request(TierSplit::kCodeHistory, bytes)).value().capacity.quantized,
            plan.capacity.quantized);
}

TEST(CachePlanTest, PureEvictionHasNoCodesAtAnyBudget) {
  const uint64_t full_bytes = FullCacheBytes(Shape(), 9000);
  for (uint64_t divisor : {20, 5, 2}) {
    const CachePlan plan =
        PlanCache(Shape(), Request(TierSplit::kFullHistory, full_bytes / divisor)).value();
    EXPECT_GT(plan.capacity.full, 0u);
    EXPECT_EQ(plan.code_windows(), 0u);
    EXPECT_EQ(plan.code_bytes, 0u);
    // To the window: one more of 8 tokens in whole blocks of 16 would not fit.
    const uint64_t block_bytes = 16 * 3 * Shape().layer_token_bytes();
    EXPECT_GT(plan.total_bytes() + block_bytes + 4096, full_bytes / divisor);
  }
}

TEST(CachePlanTest, WhatScoringKeepsOfWindowsIsPaidFor) {
  PlanRequest request = Request(TierSplit::kFullHistory, FullCacheBytes(Shape(), 9000) / 5);
  const CachePlan plain = PlanCache(Shape(), request).value();
  request.scoring = kKeepsMost;
  const CachePlan scored = PlanCache(Shape(), request).value();
  EXPECT_LT(scored.capacity.full, plain.capacity.full);
  // 1124 windows: a count each, and a mean in each of six heads.
  const uint64_t kept = request.geometry.complete_windows(9000) * (4 + 6 * 2);
  EXPECT_GT(scored.ledger_bytes, kept);
  EXPECT_LE(scored.total_bytes(), request.limit_bytes);
}

std::vector<CodeRaise> ShuffledRaises(const KvShape& shape, test::Random& random) {
  std::vector<CodeRaise> raises;
  for (uint32_t head = 0; head < RoutedLayers(shape) * shape.kv_heads; ++head) {
    raises.push_back({head, CodeRaise::Side::kKey});
    raises.push_back({head, CodeRaise::Side::kValue});
  }
  for (size_t i = raises.size(); i > 1; --i) std::swap(raises[i - 1], raises[random.Below(i)]);
  return raises;
}

// How many of the raises a plan has made; they are a beginning of the list.
size_t RaisesMade(const CachePlan& plan, std::span<const CodeRaise> raises) {
  std::vector<CodeFormat> formats(plan.formats.size(), {plan.formats.front().head_dim, 3, 2});
  size_t made = 0;
  while (formats != plan.formats && made < raises.size()) {
    Raise(formats[raises[made].head], raises[made].side);
    ++made;
  }
  EXPECT_EQ(formats, plan.formats);
  return made;
}

// Any model, geometry and length, with its history as codes of at least K3/V2.
struct RandomRequest {
  KvShape shape;
  PlanRequest request;
  std::vector<CodeRaise> raises;

  explicit RandomRequest(test::Random& random) {
    shape = {.layers = 1 + uint32_t(random.Below(40)),
             .kv_heads = 1 + uint32_t(random.Below(8)),
             .group = 1,
             .head_dim = 16 + 16 * uint32_t(random.Below(16)),
             .swa_layer = {}};
    if (random.Below(3) == 0) {
      shape.swa_window = 64;
      for (uint32_t l = 0; l < shape.layers; ++l) shape.swa_layer.push_back(l % 3 == 1);
    }
    raises = ShuffledRaises(shape, random);
    request = {.split = TierSplit::kCodeHistory,
               .geometry = {.omega = 1 + uint32_t(random.Below(32)),
                            .sinks = uint32_t(random.Below(8)),
                            .local = 1 + uint32_t(random.Below(100))},
               .capacity_tokens = 2000 + uint32_t(random.Below(20'000)),
               .max_batch_tokens = 64,
               .limit_bytes = UINT64_MAX / 2,
               .raises = raises};
  }
};

TEST(CachePlanTest, MoreBytesNeverMeanFewerBitsAndAllThatFitsIsSpent) {
  test::Random random(20261130);
  for (int run = 0; run < 60; ++run) {
    SCOPED_TRACE("run " + std::to_string(run));
    RandomRequest one(random);
    PlanRequest& request = one.request;
    const uint64_t all_codes = CodeAllBytes(one.shape, request);
    const uint64_t full = PlanCache(one.shape, request).value().total_bytes();
    size_t last = 0;
    for (uint64_t limit = all_codes; limit < full; limit += 1 + (full - all_codes) / 97) {
      request.limit_bytes = limit;
      const CachePlan plan = PlanCache(one.shape, request).value();
      ASSERT_LE(plan.total_bytes(), limit);
      EXPECT_EQ(plan.capacity.quantized, request.geometry.history_windows(request.capacity_tokens));
      const size_t made = RaisesMade(plan, one.raises);
      ASSERT_GE(made, last);
      last = made;
      if (made == one.raises.size()) break;
      // The next would not have fitted, even if every pool began a page of memory for it.
      CodeFormat format = plan.formats[one.raises[made].head];
      const size_t before = format.page_bytes();
      Raise(format, one.raises[made].side);
      const uint64_t growth = CodePages(plan.code_windows(), request.geometry.omega) *
                              uint64_t{format.page_bytes() - before};
      EXPECT_GT(plan.total_bytes() + growth + uint64_t{4 * 4096}, limit);
    }
    EXPECT_GT(last, 0u);
  }
}

TEST(CachePlanTest, WithoutAnOrderEveryHeadHasTheBitsThatWereAskedFor) {
  PlanRequest request = Request(TierSplit::kCodeHistory, FullCacheBytes(Shape(), 9000) / 2);
  request.key_bits = 2;
  request.value_bits = 1;
  const CachePlan plan = PlanCache(Shape(), request).value();
  EXPECT_EQ(plan.formats, std::vector<CodeFormat>(6, CodeFormat{64, 2, 1}));
  EXPECT_EQ(plan.code_bits(), 1.5 + 8.0 / 64);
}

TEST(CachePlanTest, OtherSplitsHaveOtherUsesForTheirBytes) {
  test::Random random(3);
  const std::vector<CodeRaise> raises = ShuffledRaises(Shape(), random);
  for (TierSplit split : {TierSplit::kCodeAll, TierSplit::kFullHistory, TierSplit::kFullAndCodes}) {
    PlanRequest request = Request(split, FullCacheBytes(Shape(), 9000) / 2);
    request.raises = raises;
    EXPECT_EQ(RaisesMade(PlanCache(Shape(), request).value(), raises), 0u);
  }
}

TEST(CachePlanTest, NothingIsRaisedWhileWindowsAreEvicted) {
  test::Random random(3);
  const std::vector<CodeRaise> raises = ShuffledRaises(Shape(), random);
  PlanRequest request = Request(TierSplit::kCodeHistory, 0);
  request.raises = raises;
  const uint64_t all_codes = CodeAllBytes(Shape(), request);
  for (const uint64_t limit : {all_codes - 1, all_codes}) {
    request.limit_bytes = limit;
    const CachePlan plan = PlanCache(Shape(), request).value();
    EXPECT_EQ(plan.capacity.quantized == request.geometry.history_windows(9000),
              limit == all_codes);
    EXPECT_EQ(RaisesMade(plan, raises), 0u);
  }
}

TEST(CachePlanTest, AGeometryThatCannotWorkIsRefused) {
  PlanRequest request = Request(TierSplit::kCodeHistory, UINT64_MAX / 2);
  request.geometry.omega = 65;
  const auto plan = PlanCache(Shape(), request);
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(plan.error().message, ::testing::HasSubstr("--window 65"));
}

// What a plan says beside what the operating system hands out: before the first token, and when
// every window of the history has come.
TEST(CachePlanTest, ItsBytesAreThoseThatASequenceAllocates) {
  test::Random random(8);
  for (const KvShape& shape : {Shape(), ShapeWithRings()}) {
    for (TierSplit split : kSplits) {
      for (uint64_t divisor : {1, 3, 4, 6}) {
        PlanRequest request = Request(split, FullCacheBytes(shape, 2000) / divisor);
        request.capacity_tokens = 2000;
        const std::vector<CodeRaise> raises = ShuffledRaises(shape, random);
        request.raises = raises;
        request.scoring = divisor == 4 ? kKeepsMost : kPlain;
        if (divisor == 1) request.limit_bytes += 1u << 20;  // the ledger, and whole pages
        const auto plan = PlanCache(shape, request);
        if (!plan.has_value()) {
          EXPECT_TRUE(split == TierSplit::kFullOnly || split == TierSplit::kCodeAll);
          continue;
        }
        SCOPED_TRACE("split " + std::to_string(int(split)) + ", a limit of " +
                     std::to_string(request.limit_bytes));
        const auto codec = test::MakeCodec(shape, request.geometry, test::KeyMeans::kZero);
        ASSERT_TRUE(codec->Grow(2000).ok());
        const ScorePolicy policy;
        const bool tiers = split != TierSplit::kFullOnly;
        const uint64_t before = AlignedBuffer::MappedBytes();
        SequenceKv kv = SequenceKv::Create(shape, {.capacity_tokens = 2000,
                                                   .max_batch_tokens = 128,
                                                   .geometry = request.geometry,
                                                   .plan = *plan,
                                                   .scoring = request.scoring,
                                                   .codec = tiers ? codec.get() : nullptr,
                                                   .policy = tiers ? &policy : nullptr})
                            .value();
        EXPECT_EQ(AlignedBuffer::MappedBytes() - before, plan->full_bytes + plan->ledger_bytes);
        EXPECT_EQ(kv.budget().used_bytes(), plan->full_bytes + plan->ledger_bytes);
        while (kv.size_tokens() < 2000) {
          ASSERT_TRUE(kv.BeginBatch(std::min(128u, 2000 - kv.size_tokens())).ok());
          kv.Commit();
          EXPECT_LE(kv.budget().used_bytes(), request.limit_bytes);
          EXPECT_EQ(AlignedBuffer::MappedBytes() - before,
                    kv.budget().used_bytes() + kv.staging_bytes());
        }
        // Codes of windows that were never demoted and promoted are not kept, so their pages may
        // be fewer than planned.
        EXPECT_LE(kv.budget().used_bytes(), plan->total_bytes());
        if (plan->retained_windows == 0) {
          EXPECT_EQ(kv.budget().used_bytes(), plan->total_bytes());
        }
      }
    }
  }
}

}  // namespace
}  // namespace qevict
