// What routing is told about windows, under every scoring, against sums by the definition over
// random tokens. The policy moves nothing, so that the keys of the definition are all keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "cache/batch_attention.h"
#include "cache/cache_snapshot.h"
#include "kernels/f16.h"
#include "tests/cache/tiered_case.h"

namespace qevict::test {
namespace {

// Masses are sums of f32 weights, whose scores carry about 1e-6; means of values are kept in f16.
constexpr double kScoreTolerance = 1e-4, kValueTolerance = 1e-3;

// Moves nothing and keeps what it was shown last.
class WatchingPolicy final : public RoutingPolicy {
 public:
  void Route(std::span<const LedgerEntry> entries, TierCapacity,
             RoutingDecision& decision) const override {
    decision.moves.clear();
    shown.clear();
    for (const LedgerEntry& entry : entries) shown[entry.window.value] = entry.score;
    ++events;
  }
  mutable std::map<uint32_t, float> shown;
  mutable uint32_t events = 0;
};

class ScoredSequence {
 public:
  ScoredSequence(const Geometry& geometry, const ScoringConfig& scoring, uint32_t head_dim = 32)
      : geometry_(geometry),
        scoring_(scoring),
        shape_{.layers = 1,
               .kv_heads = 1,
               .group = 3,
               .head_dim = head_dim,
               .swa_layer = {},
               .score_scale = 0.3f},
        attention_(shape_, SelectIsa().value(), 1) {
    PlanRequest request{.split = TierSplit::kFullHistory,
                        .geometry = geometry,
                        .scoring = scoring,
                        .capacity_tokens = 4000,
                        .max_batch_tokens = 1000,
                        .limit_bytes = FullCacheBytes(shape_, 4000) / 2};
    kv_ = std::make_unique<SequenceKv>(
        SequenceKv::Create(shape_, {.capacity_tokens = 4000,
                                    .max_batch_tokens = 1000,
                                    .geometry = geometry,
                                    .plan = *PlanCache(shape_, request),
                                    .scoring = scoring,
                                    .policy = &policy_})
            .value());
    EXPECT_TRUE(kv_->tracks_mass());
  }

  void Batch(uint32_t tokens) {
    const uint32_t first = kv_->size_tokens();
    ASSERT_TRUE(kv_->BeginBatch(tokens).ok());
    RunChunk(first, tokens, kv_->VotersFrom(tokens));
    kv_->Commit();
    Expect(first, tokens);
  }
  void PromptByLayers(uint32_t tokens, uint32_t chunk) {
    ASSERT_TRUE(kv_->BeginPrompt(tokens).ok());
    kv_->BeginLayer(LayerId(0));
    for (uint32_t first = 0; first < tokens; first += chunk) {
      const uint32_t count = std::min(chunk, tokens - first);
      kv_->SetPassed(first);
      RunChunk(first, count, std::clamp(kv_->VotersFrom(tokens), first, first + count) - first);
    }
    kv_->CommitLayer(LayerId(0));
    kv_->EndPrompt();
    Expect(0, tokens);
  }
  const WatchingPolicy& policy() const { return policy_; }

 private:
  void RunChunk(uint32_t first, uint32_t tokens, uint32_t voters_from) {
    const size_t head_dim = shape_.head_dim, q_row = head_dim * shape_.group;
    while (keys_.size() < size_t{first + tokens} * head_dim) {
      for (size_t c = 0; c < head_dim; ++c) keys_.push_back(Rounded(random_.Normal()));
      // Values whose size differs from token to token.
      const float size = float(1 + random_.Below(9));
      for (size_t c = 0; c < head_dim; ++c) values_.push_back(Rounded(size * random_.Normal()));
      for (size_t c = 0; c < q_row; ++c) queries_.push_back(random_.Normal());
    }
    const BatchSlice slice{kv_.get(), 0, tokens, voters_from};
    ASSERT_TRUE(attention_.Bind({&slice, 1}).ok());
    std::vector<float> out(tokens * q_row);
    attention_.Store(LayerId(0), {&keys_[first * head_dim], head_dim},
                     {&values_[first * head_dim], head_dim}, 0, 1);
    attention_.Attend(LayerId(0), {&queries_[first * q_row], q_row}, out.data(), 0, 1);
  }
  static float Rounded(float x) { return F16ToF32(F32ToF16(x)); }

  // What the group of one query gives to every window that it sees.
  std::vector<double> MassesOf(uint32_t position) const {
    const size_t head_dim = shape_.head_dim;
    std::vector<double> masses(position / geometry_.omega + 1);
    for (uint32_t g = 0; g < shape_.group; ++g) {
      std::vector<double> weights;
      double sum = 0.0;
      for (uint32_t t = 0; t <= position; ++t) {
        double score = 0.0;
        for (size_t c = 0; c < head_dim; ++c) {
          score += double(queries_[(position * shape_.group + g) * head_dim + c]) *
                   double(keys_[t * head_dim + c]);
        }
        sum += weights.emplace_back(std::exp(score * double(shape_.score_scale)));
      }
      std::vector<double> row(masses.size());
      for (uint32_t t = geometry_.sinks; t <= position; ++t) {
        row[(t - geometry_.sinks) / geometry_.omega] += weights[t] / sum;
      }
      for (size_t w = 0; w < row.size(); ++w) {
        masses[w] = scoring_.group == GroupMass::kMax ? std::max(masses[w], row[w])
                                                      : masses[w] + row[w] / shape_.group;
      }
    }
    return masses;
  }

  // Counts the batch's votes by the definition, and compares if it brought an event.
  void Expect(uint32_t first, uint32_t tokens) {
    const uint32_t size = first + tokens;
    const auto history = [&](uint32_t end) {  // windows that are not local, by the definition
      uint32_t windows = 0;
      while (geometry_.sinks + (windows + 1) * geometry_.omega +
                 (geometry_.local + geometry_.omega - 1) / geometry_.omega * geometry_.omega <=
             end) {
        ++windows;
      }
      return windows;
    };
    const bool event = history(size) != history(first);
    uint32_t voter = size - std::min(tokens, scoring_.prior_tokens);
    if (tokens == 1) voter = scoring_.when == ScoreWhen::kStep || event ? first : size;
    std::vector<double> masses(size / geometry_.omega + 1);
    for (; voter < size; ++voter) {
      voters_.push_back(voter);
      const std::vector<double> of_one = MassesOf(voter);
      for (size_t w = 0; w < of_one.size(); ++w) masses[w] += of_one[w];
    }
    const uint32_t complete =
        size > geometry_.sinks ? (size - geometry_.sinks) / geometry_.omega : 0;
    scores_.resize(masses.size());
    for (uint32_t w = 0; w < masses.size(); ++w) {
      double mass = masses[w];
      if (tokens > 1 && scoring_.prior_pooling == MassPooling::kNeighbours && w < complete) {
        if (w > 0) mass = std::max(mass, masses[w - 1]);
        if (w + 1 < complete) mass = std::max(mass, masses[w + 1]);
      }
      scores_[w] += mass;
    }
    if (!event) return;
    ASSERT_EQ(policy_.shown.size(), history(size));
    for (const auto& [window, score] : policy_.shown) {
      const double expected = Ranked(window);
      EXPECT_NEAR(score, expected,
                  (scoring_.value_weighted ? kValueTolerance : kScoreTolerance) * expected + 1e-7)
          << "window " << window << " of " << size << " tokens";
    }
  }

  double Ranked(uint32_t window) const {
    const uint32_t first = geometry_.sinks + window * geometry_.omega;
    double score = scores_[window];
    if (scoring_.per_voter) {
      const auto later =
          std::ranges::count_if(voters_, [first](uint32_t voter) { return voter >= first; });
      score /= double(std::max<ptrdiff_t>(1, later));
    }
    if (scoring_.value_weighted) {
      double sum = 0.0;
      const size_t floats = size_t{geometry_.omega} * shape_.head_dim;
      for (size_t i = 0; i < floats; ++i) {
        sum += std::abs(double(values_[first * shape_.head_dim + i]));
      }
      score *= sum / double(floats);
    }
    return score;
  }

  Geometry geometry_;
  ScoringConfig scoring_;
  KvShape shape_;
  std::unique_ptr<WindowCodec> codec_;
  WatchingPolicy policy_;
  BatchAttention attention_;
  std::unique_ptr<SequenceKv> kv_;
  Random random_{4};
  std::vector<float> keys_, values_, queries_;  // by position, as f16 holds them
  std::vector<double> scores_;                  // by window
  std::vector<uint32_t> voters_;                // positions
};

struct NamedScoring {
  const char* name;
  ScoringConfig scoring;
};

class ScoringTest : public ::testing::TestWithParam<NamedScoring> {};

TEST_P(ScoringTest, RoutingIsShownTheSumsOfTheDefinition) {
  for (const Geometry& geometry :
       {Geometry{.omega = 4, .sinks = 2, .local = 6}, Geometry{.omega = 1, .sinks = 0, .local = 1},
        Geometry{.omega = 3, .sinks = 21, .local = 7}}) {
    ScoredSequence by_layers(geometry, GetParam().scoring);
    by_layers.PromptByLayers(90, 37);
    for (int t = 0; t < 14; ++t) by_layers.Batch(1);
    by_layers.Batch(17);
    EXPECT_GE(by_layers.policy().events, 5u);
    ScoredSequence by_tokens(geometry, GetParam().scoring);
    by_tokens.PromptByLayers(60, 1);
    ScoredSequence in_batches(geometry, GetParam().scoring);
    for (uint32_t tokens : {1u, 7u, 41u, 1u, 1u, 1u, 20u, 1u, 1u, 1u, 1u, 1u})
      in_batches.Batch(tokens);
  }
}

// More windows than one call of the kernel has columns for, and several tiles of keys.
TEST_P(ScoringTest, ALongPromptHasItsSumsToo) {
  ScoredSequence narrow({.omega = 1, .sinks = 4, .local = 8}, GetParam().scoring);
  narrow.PromptByLayers(300, 300);
  ScoredSequence wide({.omega = 8, .sinks = 4, .local = 16}, GetParam().scoring, 64);
  wide.PromptByLayers(900, 256);
  ScoredSequence large({.omega = 64, .sinks = 1, .local = 64}, GetParam().scoring, 96);
  large.PromptByLayers(1500, 700);
}

INSTANTIATE_TEST_SUITE_P(
    Options, ScoringTest,
    ::testing::Values(
        NamedScoring{"Default", {}}, NamedScoring{"Event", {.when = ScoreWhen::kEvent}},
        NamedScoring{"AllOfThePrompt",
                     {.prior_tokens = kAllTokens, .prior_pooling = MassPooling::kNone}},
        NamedScoring{"FiveOfThePromptApart",
                     {.prior_tokens = 5, .prior_pooling = MassPooling::kNone}},
        NamedScoring{"Max", {.group = GroupMass::kMax}}, NamedScoring{"Age", {.per_voter = true}},
        NamedScoring{"Values", {.value_weighted = true}},
        NamedScoring{"Everything",
                     {.when = ScoreWhen::kEvent,
                      .prior_tokens = kAllTokens,
                      .prior_pooling = MassPooling::kNone,
                      .group = GroupMass::kMax,
                      .per_voter = true,
                      .value_weighted = true}}),
    [](const auto& test) { return std::string(test.param.name); });

std::vector<float> ScoresOf(const SequenceKv& kv) {
  std::vector<float> scores;
  for (const HeadSnapshot& head : Snapshot(kv).heads) {
    for (const auto* tier : {&head.full, &head.attended}) {
      for (const WindowSnapshot& window : *tier) scores.push_back(window.score);
    }
  }
  return scores;
}

TieredConfig WithScores(const ScoringConfig& scoring) {
  return {.shape = SmallShape(32, false),
          .geometry = {.omega = 8, .sinks = 4, .local = 32},
          .capacity = {.full = 6, .quantized = 20},
          .capacity_tokens = 2400,
          .max_batch_tokens = 96,
          .scoring = scoring};
}

TEST(ScoringTest, AnEventAtEveryTokenMakesEventsTheSameAsSteps) {
  const auto run = [](ScoreWhen when, uint32_t omega) {
    TieredConfig config = WithScores({.when = when});
    config.geometry.omega = omega;
    TieredCase sequence(config);
    sequence.Step(90);
    for (int t = 0; t < 50; ++t) sequence.Step(1);
    return ScoresOf(sequence.kv());
  };
  EXPECT_EQ(run(ScoreWhen::kEvent, 1), run(ScoreWhen::kStep, 1));
  EXPECT_NE(run(ScoreWhen::kEvent, 8), run(ScoreWhen::kStep, 8));
}

TEST(ScoringTest, ColumnSumsDoNotDependOnTheNumberOfThreadsNorOnChunks) {
  for (const GroupMass group : {GroupMass::kMean, GroupMass::kMax}) {
    const auto run = [group](uint32_t threads, uint32_t chunk) {
      TieredConfig config = WithScores(
          {.prior_tokens = kAllTokens, .prior_pooling = MassPooling::kNone, .group = group});
      config.threads = threads;
      config.max_batch_tokens = chunk;
      TieredCase sequence(config);
      sequence.PromptByLayers(500, Compared::kWithOracle);
      EXPECT_LT(sequence.largest_mass_error(), 1e-4);
      for (int t = 0; t < 9; ++t) sequence.Step(1);
      return ScoresOf(sequence.kv());
    };
    const std::vector<float> one = run(1, 96);
    EXPECT_EQ(run(2, 96), one);
    EXPECT_EQ(run(3, 96), one);
    EXPECT_EQ(run(2, 500), one);
    EXPECT_EQ(run(3, 36), one);
  }
}

// Votes of a streamed prompt fall on codes as well.
TEST(ScoringTest, CodesReceiveTheirShareOfAPromptsVotes) {
  for (const GroupMass group : {GroupMass::kMean, GroupMass::kMax}) {
    TieredCase sequence(WithScores({.prior_tokens = kAllTokens, .group = group}));
    for (int chunk = 0; chunk < 8; ++chunk) {
      sequence.Step(96, Compared::kWithOracle);
      sequence.ExpectSound();
    }
    EXPECT_GT(sequence.kv().stats().quantized_windows, 0u);
    EXPECT_LT(sequence.largest_mass_error(), 0.04);  // as tiered_sequence_test.cc derives it
  }
}

}  // namespace
}  // namespace qevict::test
