#include "cache/raise_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace qevict {
namespace {

using Side = CodeRaise::Side;

// Two heads a layer; the layer in the middle may be one with a sliding window.
std::vector<CodeRaise> OrderOf(const std::vector<float>& value_scale, bool swa) {
  KvShape shape{.layers = 3, .kv_heads = 2, .group = 1, .head_dim = 16, .swa_layer = {}};
  if (swa) {
    shape.swa_window = 32;
    shape.swa_layer = {false, true, false};
  }
  WindowCodec::Config config{.formats = {{16, 3, 2}},
                             .rope = {.head_dim = 16,
                                      .layout = RopePairs::Layout::kHalves,
                                      .angles = std::vector<double>(8, 0.1)},
                             .layers = 3,
                             .kv_heads = 2,
                             .heads = {},
                             .sinks = 4,
                             .omega = 8};
  for (size_t head = 0; head < 6; ++head) {
    config.heads.push_back({.weight = std::vector<float>(16, 1.0f),
                            .mean = std::vector<float>(16, 0.0f),
                            .value_scale = value_scale[head]});
  }
  return RaiseOrder(shape, *WindowCodec::Create(std::move(config)).value());
}

TEST(RaiseOrderTest, TheLargestValuesComeFirstWithTwoKeysForEachValue) {
  const std::vector<CodeRaise> expected = {{2, Side::kValue}, {2, Side::kKey},   {4, Side::kKey},
                                           {4, Side::kValue}, {0, Side::kKey},   {1, Side::kKey},
                                           {0, Side::kValue}, {3, Side::kKey},   {5, Side::kKey},
                                           {1, Side::kValue}, {3, Side::kValue}, {5, Side::kValue}};
  // Equals keep the order of the layers.
  EXPECT_EQ(OrderOf({2, 1, 8, 1, 4, 1}, false), expected);
}

TEST(RaiseOrderTest, HeadsThatAreNotReviewedHaveNoPlace) {
  const std::vector<CodeRaise> expected = {{1, Side::kValue}, {1, Side::kKey},  {2, Side::kKey},
                                           {2, Side::kValue}, {0, Side::kKey},  {3, Side::kKey},
                                           {0, Side::kValue}, {3, Side::kValue}};
  EXPECT_EQ(OrderOf({2, 8, 90, 90, 4, 1}, true), expected);
}

}  // namespace
}  // namespace qevict
