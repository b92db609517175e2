#include "eval/history_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "engine/engine.h"
#include "kernels/q8.h"
#include "support/tiny_model.h"

namespace qevict::test {
namespace {

using ::testing::HasSubstr;

TEST(CodecChoiceTest, EveryNameIsReadBackAsWhatItNames) {
  std::set<std::string> names;
  for (const CodecChoice& choice : AllCodecs()) {
    EXPECT_EQ(ParseCodec(choice.name()).value(), choice) << choice.name();
    names.insert(choice.name());
  }
  EXPECT_EQ(names.size(), AllCodecs().size());
  EXPECT_TRUE(names.contains("k3v2"));
  EXPECT_TRUE(names.contains("minmax2"));
}

TEST(CodecChoiceTest, AnUnknownNameListsTheKnownOnes) {
  for (const char* name : {"", "k5v2", "k3v3", "minmax3", "K3V2", "k3v2 "}) {
    const auto choice = ParseCodec(name);
    ASSERT_FALSE(choice) << name;
    EXPECT_EQ(choice.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(choice.error().message, HasSubstr("k3v2, ")) << name;
  }
}

TEST(CodecChoiceTest, BitsCountEverythingThatIsStored) {
  const auto bits = [](const char* name, uint32_t head_dim) {
    return ParseCodec(name).value().bits_per_element(head_dim, 8);
  };
  // The mean of keys and values, and one byte of scale per row.
  EXPECT_EQ(bits("k3v2", 64), 2.5 + 8.0 / 64);
  EXPECT_EQ(bits("k3v2", 128), 2.5 + 8.0 / 128);
  EXPECT_EQ(bits("k2v1", 64), 1.5 + 8.0 / 64);
  EXPECT_EQ(bits("k4v4", 64), 4.0 + 8.0 / 64);
  // Two bytes of scale per 32 channels, or per 16 that are left of 80.
  EXPECT_EQ(bits("q8", 64), 8.5);
  EXPECT_EQ(bits("q8", 80), 8 + 3 * 16.0 / 80);
  // Keys: 2 bits and 32 of grid per channel and 8 tokens; values: 2 and 32 per token.
  EXPECT_EQ(bits("minmax2", 64), (2 + 32.0 / 8 + 2 + 32.0 / 64) / 2);
  EXPECT_EQ(bits("minmax8", 128), (8 + 32.0 / 8 + 8 + 32.0 / 128) / 2);
  // Channels of K's third bit come by the 32.
  EXPECT_DOUBLE_EQ(bits("k3v2", 48), (2 + 64.0 / 48 + 2) / 2 + 8.0 / 48);
}

class HistoryCodecTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kTokens = 150;

  void SetUp() override {
    auto engine = Engine::Load(
        {.model_path = tiny_.path(), .threads = 2, .cache = {.policy = CachePolicy::kQuant}});
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
    sequence_ = engine_->NewFullSequence(kTokens + 10).value();
    const Status status = engine_->Prefill(*sequence_, RandomTokens(Config(), kTokens, 5), nullptr);
    ASSERT_TRUE(status) << status.error().message;
    before_ = Rows();
  }
  static TinyModelConfig Config() { return {.family = Family::kQwen2, .context = 512}; }

  // [token, layer, KV head, keys then values], as f32.
  std::vector<std::vector<float>> Rows() const {
    SequenceKv& kv = sequence_->kv();
    const KvShape& shape = kv.shape();
    std::vector<std::vector<float>> rows(kTokens);
    for (uint32_t t = 0; t < kTokens; ++t) {
      for (uint32_t l = 0; l < shape.layers; ++l) {
        for (uint32_t h = 0; h < shape.kv_heads; ++h) {
          const KvView view = kv.View(LayerId(l), KvHeadId(h));
          for (uint32_t c = 0; c < shape.head_dim; ++c) {
            rows[t].push_back(KeyAt(view, t, c, shape.head_dim));
          }
          for (uint32_t c = 0; c < shape.head_dim; ++c) {
            rows[t].push_back(ValueAt(view, t, c, shape.head_dim));
          }
        }
      }
    }
    return rows;
  }
  void Rewrite(const char* name, const Geometry& geometry) {
    auto codec = HistoryCodec::Create(ParseCodec(name).value(), *engine_->codec(),
                                      sequence_->kv().shape(), geometry);
    ASSERT_TRUE(codec) << codec.error().message;
    const Status status = codec->RewriteHistory(sequence_->kv());
    ASSERT_TRUE(status) << status.error().message;
  }

  const TinyModelFile tiny_{Config()};
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Sequence> sequence_;
  std::vector<std::vector<float>> before_;
};

TEST_F(HistoryCodecTest, OnlyTheHistoryChanges) {
  for (const char* name : {"k3v2", "minmax2", "q8"}) {
    for (const Geometry geometry : {Geometry{.omega = 8, .sinks = 4, .local = 64},
                                    Geometry{.omega = 5, .sinks = 0, .local = 1}}) {
      Rewrite(name, geometry);
      const auto after = Rows();
      for (uint32_t t = 0; t < kTokens; ++t) {
        const bool history = geometry.zone_of(Position(t), kTokens) == Zone::kHistory;
        EXPECT_EQ(after[t] != before_[t], history) << name << ", token " << t;
      }
      ASSERT_TRUE(sequence_->Truncate(0));
      ASSERT_TRUE(engine_->Prefill(*sequence_, RandomTokens(Config(), kTokens, 5), nullptr));
    }
  }
}

TEST_F(HistoryCodecTest, AShortSequenceHasNoHistory) {
  Rewrite("k2v1", {.omega = 8, .sinks = 100, .local = 64});
  EXPECT_EQ(Rows(), before_);
}

TEST_F(HistoryCodecTest, Int8IsOffByHalfAStepOfItsGroupAndTheRoundingToF16) {
  Rewrite("q8", {.omega = 8, .sinks = 0, .local = 8});
  const auto after = Rows();
  for (uint32_t t = 0; t < kTokens; ++t) {
    for (size_t group = 0; group < after[t].size(); group += 32) {
      float largest = 0.0f;
      for (size_t i = group; i < group + 32; ++i)
        largest = std::max(largest, std::abs(before_[t][i]));
      for (size_t i = group; i < group + 32; ++i) {
        // s is up to 2^-10 above largest / 127 (values here are far from subnormal scales).
        ASSERT_NEAR(after[t][i], before_[t][i], largest * ((1.0f + 0x1p-10f) / 254 + 0x1p-11f))
            << "token " << t << ", number " << i;
      }
    }
  }
}

TEST_F(HistoryCodecTest, EightBitsOfAGridStayCloseAndTwoDoNot) {
  // A step of the grid is 1/255 of its range; the largest value of a row is at least half of that.
  Rewrite("minmax8", {});
  const auto after = Rows();
  for (uint32_t t = 0; t < kTokens; ++t) {
    for (size_t i = 0; i < after[t].size(); ++i) {
      float largest = 0.0f;
      for (uint32_t s = 0; s < kTokens; ++s) {
        largest = std::max(largest, std::abs(before_[s][i]));
      }
      const size_t head_dim = Config().head_dim;
      const size_t row = i / head_dim * head_dim;
      for (size_t c = row; c < row + head_dim; ++c) {
        largest = std::max(largest, std::abs(before_[t][c]));
      }
      // Half a step, and twice the rounding to f16.
      ASSERT_NEAR(after[t][i], before_[t][i], largest * (2.0f / 255 / 2 + 0x1p-9f))
          << "token " << t << ", number " << i;
    }
  }
}

}  // namespace
}  // namespace qevict::test
