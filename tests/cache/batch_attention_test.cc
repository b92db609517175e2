#include "cache/batch_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <thread>

#include "kernels/f16.h"

namespace qevict {
namespace {

// Everything that one layer sees, in f32, token by token.
struct History {
  std::vector<float> k, v;  // [tokens, kv_heads * head_dim]
};

float RoundToF16(float x) { return F16ToF32(F32ToF16(x)); }

class BatchAttentionTest : public ::testing::TestWithParam<uint32_t> {  // the number of threads
 protected:
  static KvShape Shape() {
    return {.layers = 2,
            .kv_heads = 3,
            .group = 2,
            .head_dim = 32,
            .swa_window = 40,
            .swa_layer = {true, false},
            .score_scale = 0.25f};
  }
  static constexpr uint32_t kBatch = 96;

  SequenceKv NewSequence() { return SequenceKv::CreateFull(shape_, 2048, kBatch).value(); }

  std::vector<float> Random(size_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(random_);
    return values;
  }

  // Softmax over the positions that `position` sees, in double.
  std::vector<float> Expected(const History& history, LayerId layer, uint32_t position,
                              const float* q) const {
    const size_t head_dim = shape_.head_dim, row = shape_.kv_heads * head_dim;
    uint32_t from = 0;
    if (shape_.is_swa(layer.value) && position >= shape_.swa_window)
      from = position + 1 - shape_.swa_window;
    std::vector<float> out(row * shape_.group);
    for (size_t h = 0; h < shape_.kv_heads * shape_.group; ++h) {
      const size_t kv = h / shape_.group * head_dim;
      std::vector<double> weights;
      double sum = 0, max = -INFINITY;
      for (uint32_t t = from; t <= position; ++t) {
        double score = 0;
        for (size_t c = 0; c < head_dim; ++c)
          score += double(q[h * head_dim + c]) * RoundToF16(history.k[t * row + kv + c]);
        weights.push_back(score * shape_.score_scale);
        max = std::max(max, weights.back());
      }
      for (double& weight : weights) sum += weight = std::exp(weight - max);
      for (size_t c = 0; c < head_dim; ++c) {
        double value = 0;
        for (uint32_t t = from; t <= position; ++t)
          value += weights[t - from] * RoundToF16(history.v[t * row + kv + c]);
        out[h * head_dim + c] = float(value / sum);
      }
    }
    return out;
  }

  // Runs one batch with `counts[i]` new random tokens for sequence i through both layers. Returns
  // all outputs.
  std::vector<float> Step(BatchAttention& attention, std::vector<SequenceKv>& sequences,
                          std::vector<std::array<History, 2>>& histories,
                          const std::vector<uint32_t>& counts) {
    const size_t kv_row = shape_.kv_heads * shape_.head_dim, q_row = kv_row * shape_.group;
    std::vector<BatchSlice> slices;
    uint32_t rows = 0;
    for (size_t s = 0; s < sequences.size(); ++s) {
      if (counts[s] == 0) continue;
      EXPECT_TRUE(sequences[s].BeginBatch(counts[s]));
      slices.push_back({&sequences[s], rows, counts[s]});
      rows += counts[s];
    }
    EXPECT_TRUE(attention.Bind(slices).ok());
    std::vector<float> all;
    for (uint32_t l = 0; l < shape_.layers; ++l) {
      const auto k = Random(rows * kv_row), v = Random(rows * kv_row), q = Random(rows * q_row);
      std::vector<float> out(rows * q_row, NAN);
      OnThreads([&](size_t t, size_t n) {
        attention.Store(LayerId(l), {k.data(), kv_row}, {v.data(), kv_row}, t, n);
      });
      OnThreads([&](size_t t, size_t n) {
        attention.Attend(LayerId(l), {q.data(), q_row}, out.data(), t, n);
      });
      for (const BatchSlice& slice : slices) {
        History& history = histories[size_t(slice.kv - sequences.data())][l];
        const auto part = [&](const std::vector<float>& from) {
          return std::pair(from.begin() + ptrdiff_t(slice.first_row * kv_row),
                           from.begin() + ptrdiff_t((slice.first_row + slice.tokens) * kv_row));
        };
        history.k.insert(history.k.end(), part(k).first, part(k).second);
        history.v.insert(history.v.end(), part(v).first, part(v).second);
        for (uint32_t t = 0; t < slice.tokens; ++t) {
          const size_t row = (slice.first_row + t) * q_row;
          const auto expected = Expected(history, LayerId(l), slice.kv->size_tokens() + t, &q[row]);
          for (size_t i = 0; i < q_row; ++i) {
            // A convex combination of values of about 4 at most; scores carry head_dim f32
            // roundings of terms of about 4, which moves a weight by less than 1e-5 of itself.
            EXPECT_NEAR(out[row + i], expected[i], 5e-5f)
                << "layer " << l << " token " << t << " element " << i;
          }
        }
      }
      all.insert(all.end(), out.begin(), out.end());
    }
    for (const BatchSlice& slice : slices) slice.kv->Commit();
    return all;
  }

  void OnThreads(const std::function<void(size_t, size_t)>& work) const {
    std::vector<std::jthread> threads;
    for (uint32_t t = 1; t < threads_; ++t) threads.emplace_back(work, t, threads_);
    work(0, threads_);
  }

  KvShape shape_ = Shape();
  uint32_t threads_ = GetParam();
  std::mt19937 random_{20261129};
};

TEST_P(BatchAttentionTest, PromptsChunksAndDecodeStepsMatchTheDefinitionWhileRingsWrap) {
  BatchAttention attention(shape_, SelectIsa().value(), threads_);
  std::vector<SequenceKv> sequences;
  sequences.push_back(NewSequence());
  std::vector<std::array<History, 2>> histories(1);
  for (uint32_t count : {1u, 7u, 96u, 96u, 50u, 1u, 1u, 2u, 96u, 1u, 17u, 96u, 96u, 96u, 1u, 1u}) {
    Step(attention, sequences, histories, {count});
    if (HasFailure()) return;
  }
}

TEST_P(BatchAttentionTest, SequencesInOneBatchDoNotSeeEachOther) {
  BatchAttention attention(shape_, SelectIsa().value(), threads_);
  std::vector<SequenceKv> sequences;
  for (int i = 0; i < 3; ++i) sequences.push_back(NewSequence());
  std::vector<std::array<History, 2>> histories(3);
  for (const std::vector<uint32_t>& counts : std::vector<std::vector<uint32_t>>{
           {60, 3, 0}, {1, 1, 1}, {1, 96, 1}, {1, 1, 80}, {0, 1, 1}, {1, 1, 1}}) {
    Step(attention, sequences, histories, counts);
    if (HasFailure()) return;
  }
}

TEST_P(BatchAttentionTest, ALongDecodeIsSplitOverTheKeysAndMerges) {
  BatchAttention attention(shape_, SelectIsa().value(), threads_);
  std::vector<SequenceKv> sequences;
  sequences.push_back(NewSequence());
  std::vector<std::array<History, 2>> histories(1);
  for (uint32_t done = 0; done < 1536; done += kBatch)
    Step(attention, sequences, histories, {kBatch});
  for (int i = 0; i < 3 && !HasFailure(); ++i) Step(attention, sequences, histories, {1});
}

TEST_P(BatchAttentionTest, TheResultDoesNotDependOnTheNumberOfThreads) {
  const auto run = [&](uint32_t threads) {
    random_.seed(5);
    threads_ = threads;
    BatchAttention attention(shape_, SelectIsa().value(), threads);
    std::vector<SequenceKv> sequences;
    for (int i = 0; i < 2; ++i) sequences.push_back(NewSequence());
    std::vector<std::array<History, 2>> histories(2);
    std::vector<float> all;
    for (const auto& counts :
         std::vector<std::vector<uint32_t>>{{96, 40}, {96, 1}, {1, 1}, {1, 1}}) {
      const auto out = Step(attention, sequences, histories, counts);
      all.insert(all.end(), out.begin(), out.end());
    }
    return all;
  };
  EXPECT_EQ(run(1), run(GetParam()));
}

// The longer the context, the more keys an item has: at these lengths 512, 1,024 and 1,536.
TEST_P(BatchAttentionTest, ItemsOfADecodeThatGrowWithTheContextStillCoverIt) {
  constexpr uint32_t kTokens = 20'000, kStep = 500;
  shape_ = {.layers = 1,
            .kv_heads = 1,
            .group = 1,
            .head_dim = 16,
            .swa_layer = {},
            .score_scale = 0.25f};
  BatchAttention attention(shape_, SelectIsa().value(), threads_);
  SequenceKv kv = SequenceKv::CreateFull(shape_, kTokens + 8, kStep).value();
  History history;
  constexpr LayerId kLayer{0};
  // Stores tokens without attending to them: what a long prompt leaves, at a fraction of its cost.
  const auto store = [&](uint32_t tokens) {
    ASSERT_TRUE(kv.BeginBatch(tokens));
    const BatchSlice slice = {&kv, 0, tokens};
    ASSERT_TRUE(attention.Bind({&slice, 1}).ok());
    const auto k = Random(size_t{tokens} * shape_.head_dim),
               v = Random(size_t{tokens} * shape_.head_dim);
    OnThreads([&](size_t t, size_t n) {
      attention.Store(kLayer, {k.data(), shape_.head_dim}, {v.data(), shape_.head_dim}, t, n);
    });
    history.k.insert(history.k.end(), k.begin(), k.end());
    history.v.insert(history.v.end(), v.begin(), v.end());
  };
  for (const uint32_t context : {7'000u, 12'000u, kTokens}) {
    while (kv.size_tokens() < context) {
      store(std::min(kStep, context - kv.size_tokens()));
      kv.Commit();
    }
    store(1);
    const auto q = Random(shape_.head_dim);
    std::vector<float> out(shape_.head_dim, NAN);
    OnThreads([&](size_t t, size_t n) {
      attention.Attend(kLayer, {q.data(), shape_.head_dim}, out.data(), t, n);
    });
    const auto expected = Expected(history, kLayer, kv.size_tokens(), q.data());
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_NEAR(out[i], expected[i], 5e-5f) << "context " << context << " channel " << i;
    kv.Commit();
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, BatchAttentionTest, ::testing::Values(1, 2, 5),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace qevict
