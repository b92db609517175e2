#include "codec/window_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/random.h"

namespace qevict {
namespace {

constexpr uint32_t kHeadDim = 32, kLayers = 2, kKvHeads = 3, kSinks = 4;

std::vector<float> GaussianRow(test::Random& random) {
  std::vector<float> row(kHeadDim);
  for (float& x : row) x = random.Normal();
  return row;
}

WindowCodec::Config TwoLayers(uint32_t omega) {
  test::Random random(5);
  WindowCodec::Config config{
      .formats = {{kHeadDim, 3, 2}, {kHeadDim, 4, 4}},
      .rope = {.head_dim = kHeadDim, .layout = RopePairs::Layout::kHalves, .angles = {}},
      .layers = kLayers,
      .kv_heads = kKvHeads,
      .heads = {},
      .sinks = kSinks,
      .omega = omega};
  for (uint32_t i = 0; i < kHeadDim / 2; ++i)
    config.rope.angles.push_back(std::pow(10000.0, -2.0 * i / kHeadDim));
  for (uint32_t h = 0; h < kLayers * kKvHeads; ++h) {
    config.heads.push_back({.weight = std::vector<float>(kHeadDim, 1.0f),
                            .mean = GaussianRow(random),
                            .key_scale = 1.0f + float(h),
                            .value_scale = 1.0f});
  }
  return config;
}

TEST(WindowCodecTest, HeadsAreLayerByLayer) {
  const WindowCodec::Config config = TwoLayers(8);
  const auto codec = WindowCodec::Create(config).value();
  for (uint32_t l = 0; l < kLayers; ++l) {
    for (uint32_t h = 0; h < kKvHeads; ++h) {
      EXPECT_EQ(codec->tables(LayerId(l), KvHeadId(h)).key_scale, 1.0f + float(l * kKvHeads + h));
    }
  }
}

// Whatever the window, the mean is that of the block's positions, at most half a block away.
TEST(WindowCodecTest, TheMeanOfAWindowIsTheTurnedMeanOfItsBlock) {
  for (uint32_t omega : {1u, 5u, 8u, 32u, 40u, 64u}) {
    const WindowCodec::Config config = TwoLayers(omega);
    const auto codec = WindowCodec::Create(config).value();
    constexpr uint32_t kTokens = 700;
    ASSERT_TRUE(codec->Grow(kTokens).ok());
    const uint32_t windows = (kTokens - kSinks) / omega;
    const uint32_t block = std::max(1u, 32 / omega);  // windows
    for (uint32_t w = 0; w < windows; ++w) {
      EXPECT_EQ(codec->BiasBlockOf(WindowId(w)), w / block);
      std::vector<float> mu(kHeadDim);
      codec->MeanOf(LayerId(1), KvHeadId(2), WindowId(w), mu.data());
      const std::vector<float>& mean = config.heads[kKvHeads + 2].mean;
      const uint32_t first = kSinks + w / block * block * omega;
      for (uint32_t i = 0; i < kHeadDim / 2; ++i) {
        double x = 0, y = 0;
        for (uint32_t p = first; p < first + block * omega; ++p) {
          const double cosine = std::cos(config.rope.angles[i] * p);
          const double sine = std::sin(config.rope.angles[i] * p);
          x += (cosine * double(mean[i]) - sine * double(mean[i + kHeadDim / 2])) / (block * omega);
          y += (sine * double(mean[i]) + cosine * double(mean[i + kHeadDim / 2])) / (block * omega);
        }
        ASSERT_NEAR(mu[i], x, 1e-5) << "omega " << omega << " window " << w;
        ASSERT_NEAR(mu[i + kHeadDim / 2], y, 1e-5) << "omega " << omega << " window " << w;
      }
    }
  }
}

TEST(WindowCodecTest, GrowingKeepsWhatThereWas) {
  const auto codec = WindowCodec::Create(TwoLayers(8)).value();
  ASSERT_TRUE(codec->Grow(0).ok());
  ASSERT_TRUE(codec->Grow(kSinks).ok());
  EXPECT_EQ(codec->shared_bytes(), 0u);
  ASSERT_TRUE(codec->Grow(100).ok());
  std::vector<float> before(kHeadDim), after(kHeadDim);
  codec->MeanOf(LayerId(0), KvHeadId(1), WindowId(5), before.data());
  const size_t bytes = codec->shared_bytes();
  ASSERT_TRUE(codec->Grow(50).ok());  // no fewer than before
  EXPECT_EQ(codec->shared_bytes(), bytes);
  ASSERT_TRUE(codec->Grow(10'000).ok());
  EXPECT_GT(codec->shared_bytes(), bytes);
  codec->MeanOf(LayerId(0), KvHeadId(1), WindowId(5), after.data());
  EXPECT_EQ(after, before);
}

TEST(WindowCodecTest, TablesThatDoNotFitTheModelAreRefused) {
  WindowCodec::Config too_few = TwoLayers(8);
  too_few.heads.pop_back();
  EXPECT_EQ(WindowCodec::Create(too_few).error().code, ErrorCode::kInvalidArgument);
  WindowCodec::Config too_short = TwoLayers(8);
  too_short.heads[3].mean.pop_back();
  EXPECT_EQ(WindowCodec::Create(too_short).error().code, ErrorCode::kInvalidArgument);
  WindowCodec::Config not_a_number = TwoLayers(8);
  not_a_number.heads[0].weight[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(WindowCodec::Create(not_a_number).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace qevict
