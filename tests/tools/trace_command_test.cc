// --trace and --attention of `qevict run` and `qevict fidelity`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <tuple>

#include "support/tiny_model.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/program.h"

namespace qevict::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

std::string Content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A trace as docs/formats/trace.md has it, its moves played again.
class Trace {
 public:
  explicit Trace(const std::filesystem::path& path) {
    const std::string text = Content(path);
    EXPECT_TRUE(text.ends_with('\n'));
    std::stringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
    EXPECT_GE(lines.size(), 2u);
    if (lines.size() < 2) return;
    EXPECT_EQ(run().at("type"), "run");
    EXPECT_EQ(run().at("format"), 1);
    EXPECT_EQ(run().at("move"), Json({"window", "from", "to", "score"}));
    EXPECT_EQ(end().at("type"), "end");
    for (size_t i = 1; i + 1 < lines.size(); ++i) {
      if (lines[i].at("type") == "clear") {
        moved_.clear();  // these tests have one sequence at a time
      } else {
        Play(lines[i]);
      }
    }
    for (const char* total : {"events", "demotions", "promotions", "evictions", "encoded"}) {
      EXPECT_EQ(end().at(total), totals_[total]) << total;
    }
  }
  const Json& run() const { return lines.front(); }
  const Json& end() const { return lines.back(); }
  const Json& last_event() const { return lines[lines.size() - 2]; }

  std::vector<Json> lines;

 private:
  void Play(const Json& event) {
    ASSERT_EQ(event.at("type"), "event");
    EXPECT_EQ(event.at("event"), ++totals_["events"]);
    EXPECT_LE(event.at("used_bytes"), event.at("limit_bytes"));
    EXPECT_EQ(event.at("limit_bytes"), run().at("limit_bytes"));
    totals_["encoded"] += event.at("encoded").get<uint64_t>();
    if (event.at("sequence") != sequence_) moved_.clear();
    sequence_ = event.at("sequence");
    std::pair<int, int> previous{-1, -1};
    for (const Json& head : event.at("heads")) {
      const std::pair<int, int> id{head.at("layer"), head.at("kv_head")};
      EXPECT_LT(previous, id);
      previous = id;
      EXPECT_FALSE(head.at("moves").empty());
      for (const Json& move : head.at("moves")) {
        const std::string from = move.at(1), to = move.at(2);
        const auto [tier, first] = moved_.try_emplace({id, move.at(0)}, "full");
        EXPECT_EQ(tier->second, from);
        EXPECT_GE(move.at(3).get<float>(), 0.0f);
        tier->second = to;
        ++totals_[to == "evicted" ? "evictions" : to == "full" ? "promotions" : "demotions"];
      }
    }
    std::map<std::string, uint64_t> windows{{"quantized", 0}, {"evicted", 0}, {"full", 0}};
    for (const auto& [window, tier] : moved_) ++windows[tier];
    windows["full"] += event.at("history_windows").get<uint64_t>() *
                           run().at("routed_layers").get<uint64_t>() *
                           run().at("kv_heads").get<uint64_t>() -
                       moved_.size();
    for (const auto& [tier, count] : windows) EXPECT_EQ(event.at("windows").at(tier), count);
  }

  std::map<std::string, uint64_t> totals_;
  std::map<std::pair<std::pair<int, int>, int>, std::string> moved_;  // (layer, head), window: tier
  int sequence_ = 0;
};

class TraceCommandTest : public ::testing::Test {
 protected:
  // $RUN is the command with a model and a budget that evicts, $DIR a folder, $TRACE a file in it.
  ProgramRun Shell(const std::string& script) const {
    const std::string dir = folder_.path().string();
    return RunShell("export QEVICT_CACHE=" + dir + "/cache; DIR=" + dir +
                    "; TRACE=" + trace_.string() + "; RUN=\"$QEVICT run -m " + model_.path() +
                    " --ignore-eos --raw --local 32 --policy qevict --kv-budget 15%\"; " + script);
  }
  std::string WriteText(const std::string& name, size_t letters) const {
    std::ofstream file(folder_.path() / name);
    // Letters that the tiny vocabulary merges with nothing.
    for (size_t i = 0; i < letters; ++i) file << "jkqvwxyz"[(i * i + i / 7) % 8];
    return folder_.path() / name;
  }
  void ExpectRefused(const std::string& flags, int exit_code, const std::string& message) const {
    const ProgramRun run = Shell(flags);
    EXPECT_EQ(run.exit_code, exit_code) << flags << run.err;
    EXPECT_EQ(run.out, "") << flags;
    EXPECT_THAT(run.err, StartsWith("error: ")) << flags;
    EXPECT_THAT(run.err, HasSubstr(message)) << flags;
    EXPECT_EQ(std::ranges::count(run.err, '\n'), 1) << run.err;
  }

  const TinyModelFile model_{TinyModelConfig{.context = 4096}};
  const TemporaryFolder folder_;
  const std::filesystem::path trace_ = folder_.path() / "trace.jsonl";
  const std::string text_ = WriteText("text", 1200);
};

TEST_F(TraceCommandTest, ATraceTellsWhatTheSummaryAddsUp) {
  for (const std::string flags :
       {"", " --prefill stream --chunk 96 --products ggml", " --promotion pin"}) {
    SCOPED_TRACE(flags);
    const ProgramRun run =
        Shell("$RUN -f $DIR/text -n 200 --ctx 2000 --trace $TRACE --json" + flags);
    ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
    const Trace trace(trace_);
    const Json kv = run.json().at("kv");
    const Json& tiers = kv.at("tiers");
    for (const char* total : {"demotions", "promotions", "evictions", "encoded"}) {
      EXPECT_EQ(trace.end().at(total), tiers.at(total)) << total;
    }
    for (const std::string tier : {"full", "quantized", "evicted"}) {
      EXPECT_EQ(trace.last_event().at("windows").at(tier), tiers.at(tier + "_windows")) << tier;
    }
    EXPECT_GT(tiers.at("evictions"), 0);
    EXPECT_LE(trace.end().at("seconds").get<double>(),
              tiers.at("routing_ms").get<double>() / 1e3 * (1 + 1e-6));
    EXPECT_EQ(trace.last_event().at("used_bytes"), kv.at("used_bytes"));
    EXPECT_EQ(trace.end().at("sequences"), 1);

    const Json& first = trace.lines[1];
    EXPECT_EQ(first.at("phase"), "prompt");
    EXPECT_EQ(first.at("position"), flags.find("stream") == flags.npos ? 1200 : 96);
    EXPECT_EQ(trace.last_event().at("phase"), "decode");
    EXPECT_EQ(trace.run().at("model"), model_.path());
    EXPECT_EQ(trace.run().at("layers"), 2);
    EXPECT_EQ(trace.run().at("kv_heads"), 2);
    EXPECT_EQ(trace.run().at("group"), 2);
    EXPECT_EQ(trace.run().at("head_dim"), 64);
    EXPECT_EQ(trace.run().at("window"), 8);
    EXPECT_EQ(trace.run().at("sinks"), 4);
    EXPECT_EQ(trace.run().at("local"), 32);
    EXPECT_EQ(trace.run().at("policy"), "qevict");
    EXPECT_EQ(trace.run().at("scoring"), "step, prior of all tokens, mean");
    EXPECT_EQ(trace.run().at("limit_bytes"), kv.at("limit_bytes"));
  }
}

TEST_F(TraceCommandTest, ATraceChangesNothingAndThreadsDoNotChangeIt) {
  for (const std::string flags : {"", " --prefill stream", " --attention reference"}) {
    const std::string base = "$RUN -f $DIR/text -n 60 --ctx 2000" + flags;
    const ProgramRun plain = Shell(base);
    std::string traces[2];
    for (const int threads : {1, 2}) {
      const ProgramRun run = Shell(base + " --trace $TRACE --threads " + std::to_string(threads));
      EXPECT_EQ(run.exit_code, 0) << run.err;
      EXPECT_EQ(run.out, plain.out) << flags;
      traces[threads - 1] =
          std::regex_replace(Content(trace_), std::regex("\"seconds\":[-+.e0-9]+"), "");
    }
    EXPECT_GT(traces[0].size(), 1000u);
    EXPECT_TRUE(traces[0] == traces[1]) << flags;
  }
}

TEST_F(TraceCommandTest, AChatIsTracedSequenceBySequence) {
  WriteText("long", 1000);
  const ProgramRun chat = Shell(
      "RUN=${RUN/--raw/-i}; (cat $DIR/long; echo; echo /clear; cat $DIR/long; echo) | "
      "$RUN -n 50 --ctx 2000 --trace $TRACE");
  ASSERT_EQ(chat.exit_code, 0) << chat.err;
  const Trace trace(trace_);
  EXPECT_EQ(trace.end().at("sequences"), 2);
  EXPECT_EQ(trace.last_event().at("sequence"), 2);
}

TEST_F(TraceCommandTest, AnInterruptedRunHasItsTotals) {
  const ProgramRun run = Shell(
      "$RUN -f $DIR/text -n 2800 --ctx 4096 --trace $TRACE > $DIR/out 2> $DIR/err & "
      "while [ ! -s $DIR/out ] && kill -0 $!; do sleep 0.01; done; kill -INT $!; wait $!");
  EXPECT_EQ(run.exit_code, 130);
  EXPECT_GE(Trace(trace_).end().at("events"), 1);
}

TEST_F(TraceCommandTest, AnUnwritablePathIsRefusedBeforeTheModelLoads) {
  std::ofstream(folder_.path() / "bad.gguf") << "no model";
  const std::string bad = "${RUN/-m */-m $DIR/bad.gguf --kv-budget 15%} -p x --trace ";
  ExpectRefused(bad + "$DIR/missing/trace", 6, "--trace '");
  ExpectRefused(bad + "$DIR", 6, "Is a directory");
  ExpectRefused(bad + "''", 2, "--trace is empty");
  if (geteuid() != 0) {
    ExpectRefused("mkdir -m 500 $DIR/locked; " + bad + "$DIR/locked/trace", 6, "Permission");
  }
  ExpectRefused(bad + "$TRACE", 3, "bad.gguf");  // it is the model that is wrong
}

TEST_F(TraceCommandTest, WhereNothingIsRoutedItIsRefused) {
  const std::string run = "$QEVICT run -m " + model_.path() + " -p x --trace $TRACE ";
  ExpectRefused(run + "--policy full", 2, "--policy full routes nothing");
  ExpectRefused(run, 2, "without --kv-budget nothing is routed");
  ExpectRefused("$QEVICT fidelity -m " + model_.path() + " -f $DIR/text --trace $TRACE", 2,
                "codecs route nothing");
  EXPECT_FALSE(std::filesystem::exists(trace_));
}

TEST_F(TraceCommandTest, WhatARunReadsIsNotOverwritten) {
  ExpectRefused("$RUN -f $DIR/text --trace $DIR/../$(basename $DIR)/text", 2, "is read");
  ExpectRefused("$RUN -p x --trace " + model_.path(), 2, "is read");
  EXPECT_EQ(Content(text_).size(), 1200u);
  EXPECT_GT(std::filesystem::file_size(model_.path()), 100'000u);
}

TEST_F(TraceCommandTest, ARefusedRunLeavesAnEarlierTraceAlone) {
  std::ofstream(trace_) << "earlier";
  ExpectRefused("${RUN/15%/4%} -f $DIR/text -n 4 --ctx 1300 --trace $TRACE", 5, "--kv-budget");
  EXPECT_EQ(std::filesystem::file_size(trace_), 7u);
  ASSERT_EQ(Shell("$RUN -f $DIR/text -n 4 --ctx 2000 --trace $TRACE").exit_code, 0);
  EXPECT_NO_THROW(Trace{trace_});
  ExpectRefused("$RUN -p x --trace -", 2, "--trace cannot be standard output");
  ExpectRefused("$RUN -p x --trace /dev/stdout", 2, "--trace cannot be standard output");
}

TEST_F(TraceCommandTest, AFullDiskIsAnErrorBehindTheAnswer) {
  const std::string base = "$RUN -f $DIR/text -n 20 --ctx 2000";
  const ProgramRun expected = Shell(base);
  const ProgramRun full = Shell(base + " --trace /dev/full");
  EXPECT_EQ(full.exit_code, 6);
  EXPECT_EQ(full.out, expected.out);
  EXPECT_THAT(full.err, HasSubstr("error: the trace is incomplete: --trace '/dev/full'"));
  const ProgramRun json = Shell(base + " --trace /dev/full --json");
  EXPECT_EQ(json.exit_code, 6);
  EXPECT_EQ(json.json().at("error").at("code"), "io");  // the only object, with the answer
  EXPECT_EQ(json.json().at("text").get<std::string>(), expected.out);
  // A disk that fills up in the middle of a line.
  const ProgramRun cut = Shell("ulimit -f 4; " + base + " --quiet --trace $TRACE");
  EXPECT_EQ(cut.exit_code, 6) << cut.err;
  EXPECT_EQ(cut.out, expected.out);
  EXPECT_THAT(cut.err, StartsWith("error: the trace is incomplete"));
  EXPECT_THAT(Content(trace_), ::testing::Not(HasSubstr("\"end\"")));
  const ProgramRun closed = Shell(base + " --quiet --trace >(head -c 1 > /dev/null)");
  EXPECT_EQ(closed.exit_code, 6) << closed.err;
  EXPECT_EQ(closed.out, expected.out);
}

TEST_F(TraceCommandTest, FidelityTracesItsPolicyText) {
  WriteText("other", 1500);
  const ProgramRun run = Shell("$QEVICT fidelity -m " + model_.path() +
                               " -f $DIR/text -f $DIR/other --context 1100 -n 50 --policy auto "
                               "--kv-budget 25% --trace $TRACE --json");
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  const Trace trace(trace_);
  EXPECT_EQ(trace.end().at("sequences"), 2);
  EXPECT_EQ(trace.last_event().at("sequence"), 2);
  EXPECT_EQ(trace.run().at("policy"), "auto");
}

TEST_F(TraceCommandTest, TheReferenceAttentionGivesTheSameAnswer) {
  const std::string full = "$QEVICT run -m " + model_.path() + " -p 'the end' -n 12 --attention ";
  EXPECT_EQ(Shell(full + "reference").out, Shell(full + "fused").out);
  ExpectRefused(full + "exact", 2, "--attention 'exact' is neither fused nor reference");
  const std::string tiered = "$RUN -f $DIR/text -n 12 --ctx 2000 --trace $TRACE --json";
  ASSERT_EQ(Shell(tiered).exit_code, 0);  // fits the codec
  const ProgramRun run = Shell(tiered + " --attention reference");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.json().at("generated_tokens"), 12);
  EXPECT_EQ(Trace(trace_).run().at("attention"), "reference");
  // Codecs are measured with it, too.
  const std::string fidelity = "$QEVICT fidelity -m " + model_.path() +
                               " -f $DIR/text --context 300 -n 8 --codec k4v4 --json --attention ";
  const auto kl = [&](const std::string& attention) {
    return Shell(fidelity + attention).json().at("rows")[0].at("kl").get<double>();
  };
  const double fused = kl("fused"), reference = kl("reference");
  EXPECT_NE(reference, fused);
  EXPECT_NEAR(reference, fused, 0.05 * fused);
}

}  // namespace
}  // namespace qevict::test
