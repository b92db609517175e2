// The benchmark on a model so small that it takes no time: what is measured means nothing, what is
// printed must be right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "bench/e2e/comparison.h"
#include "support/tiny_model.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/program.h"

namespace qevict::cli {
namespace {

using test::ProgramRun;
using test::RunQevict;
using test::TinyModelConfig;
using test::TinyModelFile;
using ::testing::HasSubstr;
using Json = nlohmann::json;

const TinyModelFile& Model() {
  static const TinyModelFile file(TinyModelConfig{.family = Family::kQwen2, .context = 1024});
  return file;
}

std::vector<std::string> Bench(std::vector<std::string> flags) {
  flags.insert(flags.begin(),
               {"bench", "-m", Model().path(), "--decode", "4", "--threads", "1", "--json"});
  return flags;
}

void ExpectComparedRates(const Json& rates, size_t rounds) {
  EXPECT_GT(rates.at("ours").get<double>(), 0.0);
  EXPECT_GT(rates.at("peer").get<double>(), 0.0);
  EXPECT_EQ(rates.at("rounds"), rounds);
  const auto spread = rates.at("spread").at("ratio");
  const double ratio = rates.at("ratio");
  EXPECT_LE(spread[0].get<double>(), ratio);
  EXPECT_GE(spread[1].get<double>(), ratio);
}

TEST(BenchCommandTest, ComparesTwoEnginesThatAgree) {
  const ProgramRun run =
      RunQevict(Bench({"--against", "llama.cpp", "--context", "96", "--repeat", "3"}));
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  const Json json = run.json();
  ExpectComparedRates(json.at("prefill"), 3);
  ExpectComparedRates(json.at("decode"), 3);
  EXPECT_EQ(json.at("context"), 96);
  EXPECT_EQ(json.at("threads"), 1);
  EXPECT_EQ(json.at("same_next_token"), true);
  for (const char* engine : {"ours", "peer"}) {
    // 2 layers, 2 KV heads of 64 channels, 4 bytes: at least the prompt's tokens.
    EXPECT_GE(json.at("kv_bytes").at(engine).get<uint64_t>(), 96u * 2 * 2 * 64 * 4) << engine;
    EXPECT_GT(json.at("peak_rss_bytes").at(engine).get<uint64_t>(),
              json.at("kv_bytes").at(engine).get<uint64_t>())
        << engine;
    EXPECT_FALSE(json.at("settings").at(engine).get<std::string>().empty()) << engine;
  }
  for (const char* key : {"model", "cpu", "commit", "isa"})
    EXPECT_FALSE(json.at(key).get<std::string>().empty()) << key;
}

TEST(BenchCommandTest, TheCpuTimeOfTheWaitingEngineIsMeasuredInTurnsThatLast) {
  const TinyModelFile file(TinyModelConfig{.context = 16384});
  const auto shares = [&](const char* tokens) {
    const ProgramRun run =
        RunQevict({"bench", "-m", file.path(), "--against", "llama.cpp", "--context", "0",
                   "--decode", tokens, "--repeat", "1", "--threads", "1", "--json"});
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
    return run.json().at("idle_cpu_share");
  };
  const Json measured = shares("4000");
  for (const char* engine : {"ours", "peer"}) {
    ASSERT_TRUE(measured.at(engine).is_number()) << engine << " for " << measured;
    EXPECT_LT(measured.at(engine).get<double>(), 0.5) << engine;
  }
  EXPECT_TRUE(shares("1").at("ours").is_null()) << "a turn too short to count ticks in";
}

TEST(BenchCommandTest, ALogOfAWorkerHasNoNameInAFolder) {
  const test::TemporaryFolder folder;
  const ProgramRun run = test::RunShell(
      "TMPDIR=" + folder.path().string() + " \"$QEVICT\" bench -m " + Model().path() +
      " --context 900 --decode 100 --repeat 1000 --threads 1 & pid=$!; sleep 1; kill -9 $pid; "
      "wait $pid");
  EXPECT_EQ(run.exit_code, 137);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(BenchCommandTest, AloneItLeavesThePeerNull) {
  const Json json = RunQevict(Bench({"--context", "0", "--repeat", "1"})).json();
  EXPECT_GT(json.at("decode").at("ours").get<double>(), 0.0);
  EXPECT_TRUE(json.at("decode").at("peer").is_null());
  EXPECT_TRUE(json.at("decode").at("ratio").is_null());
  EXPECT_TRUE(json.at("against").is_null());
}

TEST(BenchCommandTest, AWorkerUsesTheScoringThatWasChosen) {
  const test::TemporaryFolder folder;  // for the codec's tables
  const auto bench = [&](const std::string& flags) {
    const ProgramRun run = test::RunShell(
        "QEVICT_CACHE=" + folder.path().string() + " \"$QEVICT\" bench -m " + Model().path() +
        " --context 900 --decode 4 --repeat 1 --threads 1 --json --kv-budget 60% " + flags);
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
    return run.json();
  };
  const auto settings = [&](const std::string& flags) {
    return bench(flags).at("settings").at("ours").get<std::string>();
  };
  EXPECT_THAT(settings("--policy evict"),
              HasSubstr("policy evict, scores by step, prior of 32 tokens, mean, limit"));
  EXPECT_THAT(settings("--policy qevict --scoring event --score-group max --score-age "
                       "--score-values"),
              HasSubstr("scores by event, prior of all tokens, max, by age, by values, limit"));
  const Json cache = bench("--policy evict --sinks 8").at("cache");
  EXPECT_EQ(cache.at("policy"), "evict");
  EXPECT_EQ(cache.at("kv_budget"), "60%");
  EXPECT_EQ(cache.at("sinks"), 8);
}

TEST(BenchCommandTest, SeveralContextsGiveSeveralResults) {
  const Json json = RunQevict(Bench({"--context", "0,32", "--repeat", "1"})).json();
  ASSERT_EQ(json.at("results").size(), 2u);
  EXPECT_EQ(json.at("results")[1].at("context"), 32);
}

TEST(BenchCommandTest, SlidingWindowModelsRunTooThoughTheyCannotGoBack) {
  const TinyModelFile gemma(
      TinyModelConfig{.family = Family::kGemma3, .layers = 6, .swa_window = 32});
  const ProgramRun run =
      RunQevict({"bench", "-m", gemma.path(), "--against", "llama.cpp", "--context", "100",
                 "--decode", "8", "--repeat", "3", "--threads", "1", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_EQ(run.json().at("same_next_token"), true);
}

TEST(BenchCommandTest, AContextThatDoesNotFitNamesTheLargestThatDoes) {
  const ProgramRun run = RunQevict(Bench({"--context", "1024"}));
  EXPECT_EQ(run.exit_code, 5);
  // 4 decoded tokens and 2 in front of them that are not timed.
  EXPECT_THAT(run.json().at("error").at("message").get<std::string>(),
              HasSubstr("use at most --context 1018"));
  EXPECT_EQ(RunQevict(Bench({"--context", "1018", "--repeat", "1"})).exit_code, 0);
}

TEST(BenchCommandTest, ATextThatIsTooShortIsRefused) {
  const test::TemporaryFolder folder;
  const std::string text = folder.path() / "text";
  for (const char* content : {"", "short"}) {
    std::ofstream(text) << content;
    const ProgramRun run = RunQevict(Bench({"--context", "100", "-f", text}));
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_THAT(run.json().at("error").at("message").get<std::string>(),
                HasSubstr("give a longer text"));
  }
  std::ofstream(text) << std::string(400, 'a');
  EXPECT_EQ(RunQevict(Bench({"--context", "100", "-f", text, "--repeat", "1"})).exit_code, 0);
}

TEST(BenchCommandTest, AFolderIsNoText) {
  const test::TemporaryFolder folder;
  const ProgramRun run = RunQevict(Bench({"--context", "100", "-f", folder.path().string()}));
  EXPECT_EQ(run.exit_code, 6);
  EXPECT_THAT(run.json().at("error").at("message").get<std::string>(), HasSubstr("is a folder"));
}

TEST(BenchCommandTest, AnUnknownPeerIsRefused) {
  EXPECT_EQ(RunQevict(Bench({"--against", "nobody"})).exit_code, 2);
}

TEST(RoundsTest, RatiosAreTakenRoundByRoundAndTheMedianIsTheMiddle) {
  const bench::Rounds rounds = {.ours = {10.0, 20.0, 30.0}, .peer = {5.0, 20.0, 10.0}};
  EXPECT_EQ(rounds.Ratios(), (std::vector<double>{2.0, 1.0, 3.0}));
  EXPECT_EQ(bench::Median(rounds.Ratios()), 2.0);
  EXPECT_EQ(bench::Median({4.0, 1.0}), 2.5);
}

}  // namespace
}  // namespace qevict::cli
