// The engine's logits, greedy tokens and perplexity are libllama's on real models.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "support/f16_copy.h"
#include "support/parity.h"
#include "support/random.h"
#include "support/real_model.h"

namespace qevict::test {
namespace {

constexpr char kWikitext[] = "../shared/data/ppl/wikitext2_wiki.test.raw";

// Text that a language model finds plausible, of any length, without a file.
std::string Story(size_t bytes) {
  constexpr const char* kNames[] = {"Ada",  "Bruno", "Clara", "Deniz",
                                    "Elif", "Farid", "Greta", "Hugo"};
  constexpr const char* kPlaces[] = {"Lisbon", "Trieste", "Aleppo", "Bergen",
                                     "Goa",    "Cadiz",   "Riga",   "Kyoto"};
  constexpr const char* kGoods[] = {"salt",   "tea",  "amber",  "paper",
                                    "indigo", "wool", "copper", "pepper"};
  Random random(11);
  std::string text = "The ledger of the harbour office begins here.\n";
  while (text.size() < bytes) {
    text += fmt::format(
        "In the year {}, {} sailed to {} with {} chests of {}, and {} wrote down the price. ",
        1600 + random.Below(200), kNames[random.Below(8)], kPlaces[random.Below(8)],
        2 + random.Below(40), kGoods[random.Below(8)], kNames[random.Below(8)]);
    if (random.Below(5) == 0) text += "\n\n";
  }
  return text;
}

struct PromptAndSteps {
  size_t prompt;
  uint32_t steps;
};
constexpr PromptAndSteps kRuns[] = {{1, 64}, {7, 64}, {512, 128}, {2000, 64}};

void ExpectParity(ParityPair& pair, double spread_factor) {
  const std::vector<Token> text = pair.reference().Tokenize(Story(12000));
  ASSERT_GE(text.size(), 2000u);
  for (const auto& [prompt, steps] : kRuns) {
    const auto result = pair.Compare(std::span(text).first(prompt), steps);
    ASSERT_TRUE(result) << result.error().message;
    fmt::print(
        "{} tokens then {} steps: worst cosine {:.7f}, mean distance {:.1e}, libllama's own "
        "{:.1e}, {} ties\n",
        prompt, result->rows - 1, result->worst_cosine, result->mean_distance, result->mean_spread,
        result->ties);
    EXPECT_EQ(result->failure, "");
    EXPECT_LE(result->mean_distance,
              std::max(1.0 - ParityPair::kMinCosine, spread_factor * result->mean_spread));
    EXPECT_LE(result->ties, 4u);
  }
}

class RealParityTest : public ::testing::TestWithParam<const char*> {};

TEST_P(RealParityTest, LogitsAndGreedyTokensAreLibllamasWithinItsOwnSpread) {
  const std::string path = RealModel(GetParam());
  QEVICT_NEED_MODEL(path);
  auto pair = ParityPair::Load({path, path}, /*context_tokens=*/2304, ParityBound::kOwnSpread);
  ASSERT_TRUE(pair) << pair.error().message;
  ExpectParity(*pair, /*spread_factor=*/2.0);
}

std::string ModelTestName(const ::testing::TestParamInfo<const char*>& test) {
  std::string name = test.param;
  std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, RealParityTest,
                         ::testing::Values(kSmolLm2, kQwenHalfB, "gemma-3-270m-q4_k_m.gguf"),
                         ModelTestName);

// Without the 8-bit rounding of activations the strict bound holds for every row.
TEST(RealWeightsInF16Test, OfSmolLmGiveLibllamasLogitsStrictly) {
  const std::string path = RealModel(kSmolLm2);
  QEVICT_NEED_MODEL(path);
  const std::filesystem::path copy =
      std::filesystem::path(::testing::TempDir()) / "qevict-smollm2-f16.gguf";
  const Status written = WriteF16Copy(path, copy.string());
  ASSERT_TRUE(written) << written.error().message;
  {
    auto pair = ParityPair::Load({copy.string(), copy.string()}, /*context_tokens=*/2304,
                                 ParityBound::kCosine);
    ASSERT_TRUE(pair) << pair.error().message;
    ExpectParity(*pair, /*spread_factor=*/0.0);
  }
  std::filesystem::remove(copy);
}

// Sum of -log p(token) over the second half of a chunk, as llama.cpp's perplexity tool scores it.
double ScoreSecondHalf(std::span<const float> logits, std::span<const Token> chunk, size_t vocab) {
  double sum = 0.0;
  for (size_t t = chunk.size() / 2; t + 1 < chunk.size(); ++t) {
    const std::span<const float> row = logits.subspan(t * vocab, vocab);
    const float largest = *std::max_element(row.begin(), row.end());
    double total = 0.0;
    for (float v : row) total += std::exp(double(v) - largest);
    sum += std::log(total) + largest - row[size_t(chunk[t + 1])];
  }
  return sum;
}

TEST(PerplexityParityTest, WikitextOfSmolLmIsWithinATenthOfAPercentOfLibllamas) {
  const std::string path = RealModel(kSmolLm2);
  QEVICT_NEED_MODEL(path);
  if (!std::filesystem::exists(kWikitext)) GTEST_SKIP() << kWikitext << " is not there";
  constexpr size_t kContext = 512, kChunks = 16;
  std::string text(100'000, '\0');
  std::ifstream(kWikitext, std::ios::binary).read(text.data(), std::streamsize(text.size()));

  auto pair = ParityPair::Load({path, path}, kContext, ParityBound::kCosine);
  ASSERT_TRUE(pair) << pair.error().message;
  const std::vector<Token> tokens = pair->reference().Tokenize(text);
  ASSERT_GE(tokens.size(), kContext * kChunks);
  const size_t vocab = pair->reference().vocab_size();
  double ours = 0.0, theirs = 0.0;
  for (size_t c = 0; c < kChunks; ++c) {
    const std::span<const Token> chunk = std::span(tokens).subspan(c * kContext, kContext);
    const auto sequence = pair->engine().NewSequence(kContext).value();
    std::vector<float> logits;
    BatchItem item{.sequence = sequence.get(),
                   .tokens = chunk,
                   .logits = LogitRows::kAll,
                   .logits_out = &logits};
    const Status status = pair->engine().Run({&item, 1}, {});
    ASSERT_TRUE(status) << status.error().message;
    ours += ScoreSecondHalf(logits, chunk, vocab);
    pair->reference().Clear();
    const auto reference = pair->reference().Decode(chunk, ReferenceRows::kAll);
    ASSERT_TRUE(reference) << reference.error().message;
    theirs += ScoreSecondHalf(*reference, chunk, vocab);
  }
  constexpr size_t kScoredPerChunk = kContext / 2 - 1;
  const double scored = double(kChunks * kScoredPerChunk);
  const double our_perplexity = std::exp(ours / scored),
               their_perplexity = std::exp(theirs / scored);
  fmt::print("perplexity {:.4f}, libllama's {:.4f}\n", our_perplexity, their_perplexity);
  EXPECT_LT(
      our_perplexity,
      30.0);  // about 20; a broken tokenization of both sides would agree at a much larger value
  EXPECT_NEAR(our_perplexity / their_perplexity, 1.0, 1e-3);
}

}  // namespace
}  // namespace qevict::test
