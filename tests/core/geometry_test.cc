#include "core/geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qevict {
namespace {

// Every geometry with small numbers, against counting token by token.
TEST(GeometryTest, CountsAndZonesAgreeWithCountingTokensForAllSmallSizes) {
  for (uint32_t omega = 1; omega <= 9; ++omega) {
    for (uint32_t sinks = 0; sinks <= 6; ++sinks) {
      for (uint32_t local = 1; local <= 20; ++local) {
        const Geometry geometry{omega, sinks, local};
        for (uint32_t size = 0; size <= 70; ++size) {
          uint32_t counts[3] = {};
          for (uint32_t p = 0; p < size; ++p) ++counts[int(geometry.zone_of(Position(p), size))];
          SCOPED_TRACE(testing::Message() << omega << " " << sinks << " " << local << " " << size);
          ASSERT_EQ(counts[int(Zone::kSink)], geometry.sink_tokens(size));
          ASSERT_EQ(counts[int(Zone::kHistory)], geometry.history_windows(size) * omega);
          ASSERT_EQ(counts[int(Zone::kLocal)], geometry.local_tokens(size));
          ASSERT_EQ(counts[0] + counts[1] + counts[2], size);
        }
      }
    }
  }
}

TEST(GeometryTest, TheLocalZoneNeverHoldsFewerThanItsTokensWhileThereAreThatMany) {
  for (uint32_t omega : {1u, 3u, 8u, 64u}) {
    for (uint32_t local : {1u, 8u, 13u, 64u}) {
      const Geometry geometry{omega, 4, local};
      for (uint32_t size = 0; size < 400; ++size) {
        const uint32_t outside_sinks = size - geometry.sink_tokens(size);
        EXPECT_GE(geometry.local_tokens(size), std::min(local, outside_sinks));
        EXPECT_LT(geometry.local_tokens(size), local + 2 * omega);
      }
    }
  }
}

TEST(GeometryTest, OneMoreTokenMovesAtMostOneWindowIntoTheHistoryAndOnlyWhenAWindowCompletes) {
  const Geometry geometry{8, 4, 20};
  for (uint32_t size = 0; size < 500; ++size) {
    const uint32_t before = geometry.history_windows(size),
                   after = geometry.history_windows(size + 1);
    EXPECT_LE(after - before, 1u);
    if (after != before) {
      EXPECT_EQ(geometry.open_tokens(size + 1), 0u);
    }
  }
}

TEST(GeometryTest, AWindowHoldsOmegaConsecutivePositions) {
  const Geometry geometry{8, 4, 64};
  EXPECT_EQ(geometry.first_position(WindowId(0)), Position(4));
  EXPECT_EQ(geometry.first_position(WindowId(3)), Position(28));
  EXPECT_EQ(geometry.window_of(Position(27)), WindowId(2));
  EXPECT_EQ(geometry.window_of(Position(28)), WindowId(3));
}

TEST(GeometryTest, NumbersOutOfRangeAreRefusedWithTheirFlag) {
  EXPECT_THAT(Geometry({0, 4, 64}).Validate().error().message, testing::HasSubstr("--window 0"));
  EXPECT_THAT(Geometry({65, 4, 64}).Validate().error().message, testing::HasSubstr("--window 65"));
  EXPECT_THAT(Geometry({8, 5000, 64}).Validate().error().message,
              testing::HasSubstr("--sinks 5000"));
  EXPECT_THAT(Geometry({8, 4, 0}).Validate().error().message, testing::HasSubstr("--local 0"));
  EXPECT_TRUE(Geometry({1, 0, 1}).Validate().ok());
}

}  // namespace
}  // namespace qevict
