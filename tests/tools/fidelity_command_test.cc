// `qevict fidelity` on a model with random weights: what is printed must be right, whatever it
// means.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/tiny_model.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/program.h"

namespace qevict::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

class FidelityCommandTest : public ::testing::Test {
 protected:
  // Tables are kept in a folder of the test's own.
  ProgramRun Run(const std::string& flags) const {
    return RunShell("QEVICT_CACHE=" + (folder_.path() / "cache").string() +
                    " $QEVICT fidelity -m " + model_.path() + " -n 12 --threads 1 --context " +
                    flags);
  }
  std::string WriteFile(const std::string& name, char letter, size_t letters) const {
    std::ofstream file(folder_.path() / name);
    // Letters that the tiny vocabulary merges with nothing.
    for (size_t i = 0; i < letters; ++i) file << char(letter + (i * i + i / 7) % 5);
    return folder_.path() / name;
  }
  static void ExpectRow(const Json& row, double bits) {
    EXPECT_EQ(row.at("bits"), bits);
    EXPECT_GT(row.at("kl").get<double>(), 0.0);
    EXPECT_GE(row.at("top1").get<double>(), 0.0);
    EXPECT_LE(row.at("top1").get<double>(), 1.0);
    EXPECT_TRUE(row.at("dlogppl").is_number_float());
    EXPECT_GT(row.at("bytes").get<uint64_t>(), 0u);
    EXPECT_GT(row.at("share").get<double>(), 0.0);
    EXPECT_LT(row.at("share").get<double>(), 1.0);
  }

  const TinyModelFile model_{TinyModelConfig{.family = Family::kQwen2, .context = 2048}};
  const TemporaryFolder folder_;
  const std::string text_ = WriteFile("text", 'v', 400), other_ = WriteFile("other", 'j', 400);
  // Long enough that codes, which come in pages of 64 tokens, are smaller than f16.
  const std::string long_ = WriteFile("long", 'v', 1600);
};

TEST_F(FidelityCommandTest, CodecsAreRowsWithTheirHonestBits) {
  const ProgramRun run = Run("180 -f " + text_ + " --codec k3v2,minmax2 --json");
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  const Json json = run.json();
  ASSERT_EQ(json.at("rows").size(), 2u);
  EXPECT_EQ(json.at("rows")[0].at("codec"), "k3v2");
  ExpectRow(json.at("rows")[0], 2.625);
  EXPECT_EQ(json.at("rows")[1].at("codec"), "minmax2");
  ExpectRow(json.at("rows")[1], 4.25);
  EXPECT_FALSE(json.at("rows")[0].contains("policy"));
  EXPECT_EQ(json.at("context"), 180);
  EXPECT_EQ(json.at("decode_tokens"), 12);
  EXPECT_EQ(json.at("threads"), 1);
  for (const char* key : {"model", "isa", "commit"}) {
    EXPECT_FALSE(json.at(key).get<std::string>().empty()) << key;
  }
  ASSERT_EQ(json.at("texts").size(), 1u);
  EXPECT_EQ(json.at("texts")[0].at("file"), text_);
  EXPECT_EQ(json.at("texts")[0].at("rows"), json.at("rows"));
}

TEST_F(FidelityCommandTest, SeveralTextsHaveTheirRowsAndAMean) {
  const Json json = Run("180 -f " + text_ + " -f " + other_ + " --codec k2v2 --json").json();
  ASSERT_EQ(json.at("texts").size(), 2u);
  ASSERT_EQ(json.at("rows").size(), 1u);
  for (const char* key : {"kl", "top1", "dlogppl", "bytes"}) {
    const auto of = [&](size_t text) {
      return json.at("texts")[text].at("rows")[0].at(key).get<double>();
    };
    EXPECT_NEAR(json.at("rows")[0].at(key).get<double>(), (of(0) + of(1)) / 2, 1e-9) << key;
  }
  EXPECT_NE(json.at("texts")[0].at("rows")[0].at("kl"), json.at("texts")[1].at("rows")[0].at("kl"));
}

TEST_F(FidelityCommandTest, APolicyIsARowOfItsOwn) {
  const Json alone = Run("1500 -f " + long_ + " --policy auto --kv-budget 50% --json").json();
  ASSERT_EQ(alone.at("rows").size(), 1u);
  const Json& row = alone.at("rows")[0];
  EXPECT_EQ(row.at("policy"), "auto");
  EXPECT_EQ(alone.at("cache").at("kv_budget"), "50%");
  EXPECT_FALSE(row.contains("codec"));
  EXPECT_LE(row.at("share").get<double>(), 0.5);
  ExpectRow(row, 16.0 * row.at("share").get<double>());
  const Json both = Run("1500 -f " + long_ + " --policy quant --codec k4v4 --json").json();
  ASSERT_EQ(both.at("rows").size(), 2u);
  EXPECT_EQ(both.at("rows")[0].at("codec"), "k4v4");
  EXPECT_EQ(both.at("rows")[1].at("policy"), "quant");
}

// Heads of the tiny model have two groups of 32 channels: 8.5 bits.
TEST_F(FidelityCommandTest, Int8TiersAreACacheAndACodec) {
  const Json rows = Run("1500 -f " + long_ + " --policy full --kv-type q8 --codec q8,k4v4 --json")
                        .json()
                        .at("rows");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].at("codec"), "q8");
  ExpectRow(rows[0], 8.5);
  EXPECT_EQ(rows[2].at("policy"), "full");
  EXPECT_EQ(rows[2].at("kv_type"), "q8");
  ExpectRow(rows[2], 16.0 * rows[2].at("share").get<double>());
  EXPECT_NEAR(rows[2].at("bits").get<double>(), 8.5, 0.1);  // but for slots in whole blocks
  EXPECT_LT(rows[2].at("kl").get<double>(), rows[1].at("kl").get<double>());
  // A budget that holds every token in q8 needs no codes.
  EXPECT_EQ(Run("1500 -f " + long_ + " --kv-type q8 --kv-budget 60% --json")
                .json()
                .at("rows")[0]
                .at("kl"),
            rows[2].at("kl"));
  const ProgramRun text = Run("180 -f " + text_ + " --kv-type q8");
  EXPECT_THAT(text.out, HasSubstr("auto, q8"));
  EXPECT_THAT(text.out, Not(HasSubstr("k3v2")));
}

TEST_F(FidelityCommandTest, EvictionOfF16AndEveryScoringCanBeMeasured) {
  const std::string policy = "1500 -f " + long_ + " --kv-budget 25% --json --policy ";
  const Json plain = Run(policy + "evict").json().at("rows")[0];
  EXPECT_EQ(plain.at("policy"), "evict");
  EXPECT_LE(plain.at("share").get<double>(), 0.25);
  ExpectRow(plain, 16.0 * plain.at("share").get<double>());
  // A codec beside it is fitted to the model, though the policy codes nothing.
  const Json with_codec = Run(policy + "evict --codec k4v4").json().at("rows");
  ASSERT_EQ(with_codec.size(), 2u);
  EXPECT_EQ(with_codec[0], Run(policy + "qevict --codec k4v4").json().at("rows")[0]);
  EXPECT_EQ(with_codec[1], plain);
  const ProgramRun run = Run(policy +
                             "qevict --scoring event --score-prior all --score-group max "
                             "--score-age --score-values");
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_EQ(run.json().at("rows")[0].at("policy"), "qevict");
}

TEST_F(FidelityCommandTest, AllCodecsAndTheUsualOnes) {
  EXPECT_EQ(Run("180 -f " + text_ + " --codec all --json").json().at("rows").size(), 13u);
  const ProgramRun run = Run("180 -f " + text_);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  for (const char* name : {"k2v2", "k3v2", "k4v2", "k4v4", "minmax2", "TOP-1", "context 180"}) {
    EXPECT_THAT(run.out, HasSubstr(name));
  }
  EXPECT_THAT(run.err, HasSubstr("k3v2"));  // progress
}

TEST_F(FidelityCommandTest, BadInputIsRefusedInOneSentence) {
  const auto refused = [&](const std::string& flags, int exit_code, const std::string& message) {
    const ProgramRun run = Run("180 " + flags + " --json");
    EXPECT_EQ(run.exit_code, exit_code) << flags << run.err;
    EXPECT_THAT(run.json().at("error").at("message").get<std::string>(), HasSubstr(message));
  };
  const std::string with_text = "-f " + text_ + " ";
  refused("-f " + WriteFile("short", 'v', 100), 2, "the text has 100 tokens, and 193 are needed");
  refused("-f " + (folder_.path() / "missing").string(), 3, "missing");
  refused(with_text + "--codec k9v9", 2, "known are k2v1, ");
  refused(with_text + "--codec k3v2 --local 170", 2, "leaves a codec nothing to code");
  refused(with_text + "--policy full", 2, "name another policy");
  refused(with_text + "--policy auto", 2, "give --kv-budget");
  refused(with_text + "--kv-type f16", 2, "give --kv-budget");
  refused(with_text + "--kv-type q8_0", 2, "--kv-type 'q8_0' is neither f16 nor q8");
  refused(with_text + "--policy full --kv-type q8 --kv-budget 30%", 5, "choose another --policy");
  refused(with_text + "--policy auto --kv-budget 1%", 5, "budget");
  refused(with_text + "--policy evict --kv-budget 1%", 5, "the smallest that works");
  refused(with_text + "--policy quant --scoring event", 2,
          "--scoring does nothing with --policy quant");
  refused(with_text + "--score-age", 2, "--score-age does nothing without --kv-budget");
  refused(with_text + "--policy some", 2, "--policy 'some' is none of");
  refused(with_text + "--kv-budget 0%", 2, "--kv-budget '0%' is neither");
  refused(with_text + "--prefill bogus", 2, "--prefill 'bogus' is neither exact nor stream");
  refused(with_text + "--promotion x", 2, "--promotion 'x' is neither expand nor pin");
  refused(with_text + "--scoring x", 2, "--scoring 'x' is neither step nor event");
  refused(with_text + "--score-prior 0", 2, "--score-prior '0' is neither");
  refused(with_text + "--score-group min", 2, "--score-group 'min' is neither mean nor max");
  refused("", 2, "--file");
}

TEST_F(FidelityCommandTest, AContextBeyondTheModelsIsRefused) {
  const ProgramRun run = RunQevict({"fidelity", "-m", model_.path(), "-f", text_, "--json"});
  EXPECT_EQ(run.exit_code, 5);
  EXPECT_THAT(run.json().at("error").at("message").get<std::string>(), HasSubstr("the 2048"));
}

}  // namespace
}  // namespace qevict::test
