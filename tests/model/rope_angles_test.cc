// A sequence of one token, over and over, has the same state everywhere, so its keys differ between
// positions by RoPE alone: what the model's graph does with them is the reference.
#include "model/rope_angles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "codec/mean_rotation.h"
#include "model/model_runner.h"
#include "support/tiny_model.h"

namespace qevict::test {
namespace {

constexpr uint32_t kTokens = 200;

// Keeps the keys of one layer. Attention over equal values is that value.
class KeyCatcher final : public Attention {
 public:
  KeyCatcher(const Hyperparameters& h, LayerId layer)
      : head_dim_(h.head_dim), group_(h.group()), kv_heads_(h.kv_heads), layer_(layer) {}
  void Store(LayerId layer, RowsView k, RowsView v, size_t, size_t) override {
    values_.assign(v.base, v.base + kv_heads_ * head_dim_);
    if (layer != layer_) return;
    keys.clear();
    for (uint32_t t = 0; t < kTokens; ++t) {
      keys.emplace_back(k.base + t * k.stride, k.base + t * k.stride + head_dim_);  // of head 0
    }
  }
  void Attend(LayerId, RowsView, float* out, size_t, size_t) override {
    for (size_t head = 0; head < size_t{kTokens} * kv_heads_ * group_; ++head) {
      const size_t kv_head = head / group_ % kv_heads_;
      std::copy_n(values_.begin() + ptrdiff_t(kv_head * head_dim_), head_dim_,
                  out + head * head_dim_);
    }
  }
  std::vector<std::vector<float>> keys;

 private:
  size_t head_dim_, group_, kv_heads_;
  LayerId layer_;
  std::vector<float> values_;
};

class RopeAnglesTest : public ::testing::TestWithParam<NamedTinyModel> {};

TEST_P(RopeAnglesTest, TurnTheFirstKeyIntoEveryLaterOne) {
  const TinyModelFile tiny(GetParam().config);
  const auto file = GgufFile::Open(tiny.path()).value();
  const Hyperparameters h = ReadHyperparameters(*file).value();
  uint32_t layer = 0;
  while (h.is_swa(layer)) ++layer;  // a sliding-window layer may have other angles
  ASSERT_LT(layer, h.layers);
  KeyCatcher catcher(h, LayerId(layer));
  const auto runner = ModelRunner::Load(*file, h, catcher, {.threads = 1}).value();
  const std::vector<Token> tokens(kTokens, RandomTokens(GetParam().config, 1, 3)[0]);
  std::vector<Position> positions;
  for (uint32_t t = 0; t < kTokens; ++t) positions.emplace_back(t);
  ASSERT_TRUE(runner->Run({.tokens = tokens, .positions = positions, .logit_rows = {}}));

  const RopePairs pairs{.head_dim = h.head_dim,
                        .layout = h.rope_layout == RopeLayout::kHalves
                                      ? RopePairs::Layout::kHalves
                                      : RopePairs::Layout::kInterleaved,
                        .angles = RopeAngles(*file, h)};
  float largest = 0.0f;
  for (float v : catcher.keys[0]) largest = std::max(largest, std::abs(v));
  ASSERT_GT(largest, 0.0f);
  std::vector<float> turn(h.head_dim), turned(h.head_dim);
  for (uint32_t t = 1; t < kTokens; ++t) {
    MeanTurn(pairs, Position(t), 1, turn.data());
    Turn(pairs, turn.data(), catcher.keys[0].data(), turned.data());
    for (uint32_t c = 0; c < h.head_dim; ++c) {
      // ggml multiplies the angle up in f32: 2^-24 for each of the position's factors, and the
      // activations of f16 products are rounded to 2^-11, in every row alike but for their order.
      ASSERT_NEAR(turned[c], catcher.keys[t][c], largest * (1e-4f + float(t) * 0x1p-22f))
          << "position " << t << ", channel " << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, RopeAnglesTest, ::testing::ValuesIn(TinyFamilies(64)),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace qevict::test
