#include <gguf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/utf8.h"
#include "support/real_model.h"
#include "support/tiny_model.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/program.h"

namespace qevict::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Arguments = std::vector<std::string>;

// A random model talks nonsense, bytes that are no UTF-8 included, and never stops by itself.
class RunCommandTest : public ::testing::Test {
 protected:
  static TinyModelConfig Config() {
    TinyModelConfig config;
    config.context = 16384;
    return config;
  }
  ProgramRun Run(Arguments arguments) const {
    arguments.insert(arguments.begin(), {"run", "-m", model_.path(), "--ignore-eos"});
    return RunQevict(arguments);
  }
  // $RUN is the command with a model, $DIR a folder for files.
  ProgramRun Shell(const std::string& script) const {
    return RunShell("RUN=\"$QEVICT run -m " + model_.path() +
                    " --ignore-eos\"; DIR=" + folder_.path().string() + "; " + script);
  }
  std::string WriteFile(const std::string& name, std::string_view text) const {
    std::ofstream(folder_.path() / name, std::ios::binary) << text;
    return folder_.path() / name;
  }
  std::string Answer(Arguments arguments) const {
    const ProgramRun run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.out;
  }
  void ExpectRefused(const Arguments& arguments, int exit_code, const std::string& message) const {
    const ProgramRun run = Run(arguments);
    EXPECT_EQ(run.exit_code, exit_code) << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, StartsWith("error: "));
    EXPECT_THAT(run.err, HasSubstr(message));
    EXPECT_EQ(std::ranges::count(run.err, '\n'), 1) << run.err;
  }

  const TinyModelFile model_{Config()};
  const TemporaryFolder folder_;
};

TEST_F(RunCommandTest, StandardOutputHoldsTheAnswerAndNothingElse) {
  const ProgramRun text = Run({"-p", "the end", "-n", "40"});
  const ProgramRun json = Run({"-p", "the end", "-n", "40", "--json"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(text.out, json.json().at("text"));
  EXPECT_EQ(FirstInvalidUtf8(text.out), std::nullopt);
  EXPECT_THAT(text.err, HasSubstr("40 tokens"));
  EXPECT_THAT(text.err, HasSubstr("cache"));
  EXPECT_THAT(text.err, Not(HasSubstr("reading")));  // no terminal, no progress bar

  const ProgramRun quiet = Run({"-p", "the end", "-n", "40", "--quiet"});
  EXPECT_EQ(quiet.out, text.out);
  EXPECT_EQ(quiet.err, "");
}

TEST_F(RunCommandTest, JsonIsOneLineWithAllNumbers) {
  const ProgramRun run = Run({"--raw", "-p", "aaaaaaaa", "-n", "20", "--json", "--threads", "1"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(std::ranges::count(run.out, '\n'), 1);
  const auto json = run.json();
  EXPECT_EQ(json.at("prompt_tokens"), 8);
  EXPECT_EQ(json.at("generated_tokens"), 20);
  EXPECT_EQ(json.at("context_tokens"), 28);
  EXPECT_EQ(json.at("stop_reason"), "length");
  EXPECT_EQ(json.at("threads"), 1);
  EXPECT_EQ(json.at("model"), model_.path());
  EXPECT_GT(json.at("prefill_tps"), 0.0);
  EXPECT_GT(json.at("decode_tps"), 0.0);
  const auto& kv = json.at("kv");
  EXPECT_GT(kv.at("used_bytes"), 0);
  EXPECT_LE(kv.at("used_bytes"), kv.at("peak_bytes"));
  EXPECT_LE(kv.at("peak_bytes"), kv.at("limit_bytes"));
  // 2 layers, 2 KV heads of 64 channels, keys and values of two bytes, 28 tokens.
  EXPECT_EQ(kv.at("full_f16_bytes"), 28 * 2 * 2 * 64 * 2 * 2);
  EXPECT_EQ(json.at("kv_type"), "f16");
  EXPECT_FALSE(json.at("isa").get<std::string>().empty());
}

TEST_F(RunCommandTest, Int8IsAKvTypeAndSaysSo) {
  const std::vector<std::string> flags = {"--raw", "-p", "aaaaaaaa", "-n", "20", "--kv-type", "q8"};
  std::vector<std::string> json_flags = flags;
  json_flags.push_back("--json");
  const auto json = Run(json_flags).json();
  EXPECT_EQ(json.at("kv_type"), "q8");
  EXPECT_EQ(json.at("generated_tokens"), 20);
  EXPECT_EQ(json.at("kv").at("full_f16_bytes"), 28 * 2 * 2 * 64 * 2 * 2);
  EXPECT_THAT(Run(flags).err, HasSubstr("now, in q8; peak"));
}

TEST_F(RunCommandTest, FilesComeFirstInTheirOrderThenTheQuestion) {
  const std::string a = WriteFile("a", "the first\n"), b = WriteFile("b", "the second");
  const std::string c = WriteFile("c", "\xEF\xBB\xBFthe third");  // with a byte order mark
  EXPECT_EQ(Answer({"-p", "and?", "-f", a, "-f", b, "-f", c, "-n", "16"}),
            Answer({"-p", "the first\n\nthe second\n\nthe third\n\nand?", "-n", "16"}));
  EXPECT_EQ(Answer({"-f", a, "-n", "16"}), Answer({"-p", "the first\n", "-n", "16"}));
}

TEST_F(RunCommandTest, StandardInputIsThePromptOrADocument) {
  const std::string expected = Answer({"-p", "the end", "-n", "16"});
  EXPECT_EQ(Shell("echo 'the end' | $RUN -n 16").out, expected);
  EXPECT_EQ(Shell("printf 'the end' | $RUN -n 16 -f -").out, expected);
  EXPECT_EQ(Shell("printf 'the doc' | $RUN -n 16 -f - -p 'the end'").out,
            Answer({"-p", "the doc\n\nthe end", "-n", "16"}));
}

TEST_F(RunCommandTest, TheChatTemplateIsLeftOutWithRawOnly) {
  const auto tokens = [&](Arguments arguments) {
    arguments.insert(arguments.end(), {"-n", "1", "--json"});
    return Run(arguments).json().at("prompt_tokens").get<int>();
  };
  EXPECT_EQ(tokens({"--raw", "-p", "xyz"}), 3);
  EXPECT_EQ(tokens({"--raw", "-p", "<|im_end|>"}), 1);
  EXPECT_GT(tokens({"-p", "xyz"}), 3 + 3);
  EXPECT_GT(tokens({"-p", "xyz", "--system", "s"}), tokens({"-p", "xyz"}));
  EXPECT_GT(tokens({"-p", "<|im_end|>"}), tokens({"-p", "xyz"}));  // a person's text stays text
}

TEST_F(RunCommandTest, SamplingFollowsItsFlags) {
  const Arguments base = {"-p", "the end", "-n", "30"};
  const auto with = [&](Arguments more) {
    more.insert(more.begin(), base.begin(), base.end());
    return Answer(more);
  };
  EXPECT_EQ(with({"--temp", "2", "--seed", "1"}), with({"--temp", "2", "--seed", "1"}));
  EXPECT_NE(with({"--temp", "2", "--seed", "1"}), with({"--temp", "2", "--seed", "2"}));
  EXPECT_EQ(with({"--temp", "2", "--top-k", "1"}), with({}));
  const std::string grammar = WriteFile("grammar", "root ::= \"yes\" | \"no\"");
  EXPECT_THAT(with({"--grammar-file", grammar}), ::testing::AnyOf("yes", "no"));
  EXPECT_THAT(with({"--json-schema", "{\"enum\": [\"a\", \"b\"]}"}),
              ::testing::AnyOf("\"a\"", "\"b\""));
  const std::string schema = WriteFile("schema", "{\"const\": 7}");
  EXPECT_EQ(with({"--json-schema", "@" + schema}), "7");
}

TEST_F(RunCommandTest, AStopStringIsNotShown) {
  const std::string grammar = WriteFile("grammar", "root ::= \"one two three\"");
  const ProgramRun run =
      Run({"-p", "x", "--grammar-file", grammar, "--stop", "never", "--stop", " three", "--json"});
  EXPECT_EQ(run.json().at("text"), "one two");
  EXPECT_EQ(run.json().at("stop_reason"), "stop_string");
}

TEST_F(RunCommandTest, AnAnswerWithoutLimitFillsTheContext) {
  const auto json = Run({"--raw", "-p", "aaaa", "-n", "0", "--ctx", "12", "--json"}).json();
  EXPECT_EQ(json.at("stop_reason"), "context");
  EXPECT_EQ(json.at("generated_tokens"), 9);  // eight are kept, the ninth is known
}

TEST_F(RunCommandTest, ChunksAndThreadsDoNotChangeTheAnswer) {
  const Arguments base = {"-p", "the end of the road and the other end", "-n", "24"};
  const std::string expected = Answer(base);
  for (const Arguments& more :
       {Arguments{"--chunk", "3"}, {"--threads", "1"}, {"--threads", "2"}}) {
    Arguments arguments = base;
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(Answer(arguments), expected) << more[0];
  }
}

TEST_F(RunCommandTest, BadInputIsRefusedInOneSentence) {
  const std::string bad = WriteFile("bad", "abc\xFF"), empty = WriteFile("empty", "");
  const std::string missing = folder_.path() / "missing";
  ExpectRefused({"-f", bad}, 2, "is not valid UTF-8 at byte 3");
  ExpectRefused({"-p", "a\xFE"}, 2, "-p is not valid UTF-8 at byte 1");
  ExpectRefused({"-p", "a", "--system", "\xFE"}, 2, "--system is not valid UTF-8 at byte 0");
  ExpectRefused({"-p", ""}, 2, "empty");
  ExpectRefused({"-f", empty}, 2, "empty");
  ExpectRefused({}, 2, "empty");  // standard input is /dev/null
  ExpectRefused({"-f", missing}, 3, "missing");
  ExpectRefused({"-f", folder_.path()}, 6, "folder");
  ExpectRefused({"-p", "a", "--grammar-file", missing}, 3, "missing");
  ExpectRefused({"-p", "a", "--grammar-file", empty}, 2, "--grammar-file");
  ExpectRefused({"-p", "a", "--grammar-file", ""}, 2, "--grammar-file is empty");
  ExpectRefused({"-p", "a", "--grammar-file", bad}, 2, "UTF-8");
  ExpectRefused({"-p", "a", "--json-schema", ""}, 2, "--json-schema is empty");
  ExpectRefused({"-p", "a", "--json-schema", "@" + empty}, 2, "the file of --json-schema is empty");
  ExpectRefused({"-p", "a", "--json-schema", "{"}, 2, "--json-schema");
  ExpectRefused({"-p", "a", "--stop", ""}, 2, "--stop");
  ExpectRefused({"-p", "a", "--raw", "--system", "b"}, 2, "--system");
  ExpectRefused({"-p", "a", "--raw", "-i"}, 2, "-i");
  ExpectRefused({"-p", "a", "--policy", "qevict"}, 2, "--policy qevict does nothing without");
  ExpectRefused({"-p", "a", "-n", "8", "--kv-budget", "50%"}, 5, "needs no --kv-budget; drop it");
}

TEST_F(RunCommandTest, AChatEndsWithWhatTheCacheHolds) {
  const ProgramRun chat = Shell("printf 'a\\n/exit\\n' | $RUN -i -n 4");
  EXPECT_EQ(chat.exit_code, 0) << chat.err;
  EXPECT_THAT(chat.err, HasSubstr("\ncache "));
  EXPECT_THAT(Shell("printf 'a\\n' | $RUN -i -n 4 --quiet").err, Not(HasSubstr("cache")));
}

TEST_F(RunCommandTest, NumbersOutOfRangeAreRefusedWithTheirFlag) {
  for (const auto& [flag, values] :
       std::map<std::string, Arguments>{{"--ctx", {"0", "-1", "99999999999", "1.5", "x", "20000"}},
                                        {"--threads", {"0", "-1", "100000"}},
                                        {"--chunk", {"0", "4097"}},
                                        {"--max-tokens", {"-1", "99999999999"}},
                                        {"--temp", {"-1", "nan", "inf", "1e30"}},
                                        {"--top-k", {"-1", "99999999999"}},
                                        {"--top-p", {"0", "1.1", "nan"}},
                                        {"--min-p", {"-0.1", "1.1"}},
                                        {"--repeat-penalty", {"0", "-1", "nan"}},
                                        {"--repeat-last-n", {"-1"}},
                                        {"--seed", {"-1", "99999999999"}}}) {
    for (const std::string& value : values) {
      ExpectRefused({"-p", "a", flag + "=" + value}, 2, flag);
    }
  }
}

TEST_F(RunCommandTest, APromptBeyondTheContextIsRefusedWithBothNumbers) {
  ExpectRefused({"--raw", "-p", std::string(50, 'z'), "--ctx", "40"}, 5,
                "50 tokens, the context 40; raise --ctx to at most 16,384");
  ExpectRefused({"--raw", "-f", WriteFile("long", std::string(20'000, 'z'))}, 5,
                "20,000 tokens, the context 16,384");
  EXPECT_EQ(Run({"--raw", "-p", std::string(50, 'z'), "--ctx", "50", "--json"})
                .json()
                .at("generated_tokens"),
            1);
}

TEST_F(RunCommandTest, OutputThatCannotBeWrittenIsAnError) {
  const ProgramRun closed =
      Shell("$RUN -p x -n 5000 | head -c 1 >/dev/null; exit ${PIPESTATUS[0]}");
  EXPECT_EQ(closed.exit_code, 6);
  EXPECT_THAT(closed.err, HasSubstr("error: the answer cannot be written"));
  for (const char* json : {"", " --json"}) {
    const ProgramRun full = Shell(std::string("$RUN -p x -n 10 > /dev/full") + json);
    EXPECT_EQ(full.exit_code, 6) << json;
    EXPECT_THAT(full.err, HasSubstr("error: ")) << json;
  }
}

TEST_F(RunCommandTest, AStandardErrorThatTakesNothingChangesNothingElse) {
  const std::string expected = Answer({"-p", "the end", "-n", "16"});
  for (const std::string redirection : {" 2>/dev/full", " 2>&-"}) {
    const ProgramRun run = Shell("$RUN -p 'the end' -n 16" + redirection);
    EXPECT_EQ(run.exit_code, 0) << redirection;
    EXPECT_EQ(run.out, expected) << redirection;
  }
}

TEST_F(RunCommandTest, AModelWhoseTemplateMakesNothingOfAMessageIsRefused) {
  TinyModelConfig config = Config();
  config.edit_metadata = [](gguf_context* metadata) {
    gguf_set_val_str(metadata, "tokenizer.chat_template", "{# nothing #}");
  };
  const TinyModelFile silent(config);
  const ProgramRun once = RunQevict({"run", "-m", silent.path(), "-p", "Hi"});
  EXPECT_EQ(once.exit_code, 3) << once.err;
  EXPECT_THAT(once.err, HasSubstr("--raw"));
  const ProgramRun chat = RunShell("echo Hi | \"$QEVICT\" run -i -m " + silent.path());
  EXPECT_EQ(chat.exit_code, 3) << chat.err;
}

TEST_F(RunCommandTest, CtrlCEndsAnAnswerWithWhatWasWritten) {
  const std::string whole = Answer({"-p", "x", "-n", "1000"});
  const ProgramRun run = Shell(
      "$RUN -p x -n 16000 > $DIR/out 2> $DIR/err & while [ ! -s $DIR/out ] && kill -0 $!; do sleep "
      "0.01; done;"
      "kill -INT $!; wait $!; echo $? >&2; cat $DIR/err >&2; cat $DIR/out");
  EXPECT_THAT(run.err, StartsWith("130\n"));
  EXPECT_THAT(run.err, HasSubstr("interrupted"));
  // A character that the interruption cut in two is written as U+FFFD.
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string_view out = run.out;
  ASSERT_FALSE(out.empty());
  if (out.ends_with(kReplacement)) out.remove_suffix(kReplacement.size());
  EXPECT_THAT(whole, StartsWith(std::string(out.substr(0, whole.size()))));
}

TEST_F(RunCommandTest, ThreadsSpinBrieflyUnlessTheUserHasChosen) {
  const auto spins = [&](const std::string& environment) {
    return Shell("rm -f $DIR/out; unset OMP_WAIT_POLICY GOMP_SPINCOUNT; " + environment +
                 " $RUN -p x -n 16000 > $DIR/out 2> /dev/null & while [ ! -s $DIR/out ] && kill -0 "
                 "$!; do sleep "
                 "0.01; done; tr '\\0' '\\n' < /proc/$!/environ | grep ^GOMP_SPINCOUNT; kill $!;"
                 "wait $!")
        .out;
  };
  EXPECT_EQ(spins(""), "GOMP_SPINCOUNT=700\n");
  EXPECT_EQ(spins("GOMP_SPINCOUNT=7"), "GOMP_SPINCOUNT=7\n");
  EXPECT_EQ(spins("OMP_WAIT_POLICY=passive"), "");
}

TEST_F(RunCommandTest, AModelThatIsCutShortWhileItRunsEndsInOneSentence) {
  const ProgramRun run = Shell(
      "cp " + model_.path() +
      " $DIR/model.gguf; $QEVICT run -m $DIR/model.gguf --ignore-eos -p x -n 16000 > $DIR/out &"
      "while [ ! -s $DIR/out ] && kill -0 $!; do sleep 0.01; done; truncate -s 4096 "
      "$DIR/model.gguf; wait $!");
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_THAT(run.err, HasSubstr("\nerror: a file that is in use was cut short"));
}

TEST_F(RunCommandTest, WhatAUserTypedReachesTheTerminalWithoutControlCharacters) {
  const ProgramRun run = RunQevict({"run", "-m", "\x1b[31m\x07\x7fred", "-p", "x"});
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_THAT(run.err, HasSubstr("?[31m??red"));
}

TEST_F(RunCommandTest, CtrlCEndsReadingThePrompt) {
  WriteFile("long", std::string(16'000, 'z'));
  // One token per step makes the prompt last: it is being read when the second is over, since
  // loading takes a fraction of it and reading many.
  const ProgramRun run = Shell(
      "$RUN --raw -f $DIR/long -n 1 --chunk 1 --json > $DIR/out & sleep 1; kill -INT $!; wait $!;"
      "echo $? >&2; cat $DIR/out");
  EXPECT_THAT(run.err, HasSubstr("\n130\n"));
  EXPECT_EQ(run.json().at("stop_reason"), "cancelled");
  EXPECT_EQ(run.json().at("text"), "");
  EXPECT_EQ(run.json().at("generated_tokens"), 0);
}

TEST_F(RunCommandTest, AProgressBarIsDrawnOnATerminalOnly) {
  if (Shell("script -qec true /dev/null").exit_code != 0) {
    GTEST_SKIP() << "this system has no pseudo-terminals (is /dev/pts mounted?)";
  }
  WriteFile("long", std::string(2'000, 'z'));
  const ProgramRun terminal =
      Shell("script -qec \"$RUN --raw -f $DIR/long -n 1 --chunk 4\" /dev/null");
  EXPECT_EQ(terminal.exit_code, 0);
  EXPECT_THAT(terminal.out, HasSubstr("reading ["));
  EXPECT_THAT(terminal.out, HasSubstr("100 %  2,000 / 2,000 tokens"));
  const ProgramRun quiet =
      Shell("script -qec \"$RUN --raw -f $DIR/long -n 1 --chunk 4 --quiet\" /dev/null");
  EXPECT_THAT(quiet.out, Not(HasSubstr("reading")));
}

TEST_F(RunCommandTest, AChatAnswersLineByLine) {
  const std::string first = Answer({"-p", "the end", "-n", "8"});
  const ProgramRun chat =
      Shell("printf 'the end\\n\\n/clear\\nthe end\\n/exit\\nnot read\\n' | $RUN -i -n 8");
  EXPECT_EQ(chat.exit_code, 0) << chat.err;
  EXPECT_EQ(chat.out, first + "\n" + first + "\n");
  const ProgramRun with_prompt = Shell("printf 'and\\\\\\nmore' | $RUN -i -n 8 -p 'the end'");
  EXPECT_EQ(with_prompt.exit_code, 0) << with_prompt.err;
  EXPECT_THAT(with_prompt.out, StartsWith(first + "\n"));
  EXPECT_GT(with_prompt.out.size(), first.size() + 2);
}

TEST_F(RunCommandTest, AChatThatFillsItsContextSaysSo) {
  const ProgramRun chat = Shell("printf 'the end\\nthe end\\n' | $RUN -i -n 20 --ctx 48");
  EXPECT_EQ(chat.exit_code, 5);
  EXPECT_THAT(chat.err, HasSubstr("the context has 48"));
}

TEST_F(RunCommandTest, AChatReadsOnWhereItsLastAnswerEnded) {
  // Letters that the tiny vocabulary merges with nothing: text and tokens are the same thing.
  WriteFile("grammar", "root ::= [jkqvwxyz] [jkqvwxyz] [jkqvwxyz] [jkqvwxyz]");
  const ProgramRun chat = Shell("printf 'one\\ntwo\\n' | $RUN -i -n 8 --grammar-file $DIR/grammar");
  ASSERT_EQ(chat.exit_code, 0) << chat.err;
  ASSERT_EQ(chat.out.size(), 10u) << chat.out;
  const std::string first = chat.out.substr(0, 4), second = chat.out.substr(5, 4);
  const std::string conversation = "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\n" +
                                   first + "<|im_end|>\n<|im_start|>user\ntwo<|im_end|>\n" +
                                   "<|im_start|>assistant\n";
  const std::string grammar = folder_.path() / "grammar";
  EXPECT_EQ(Answer({"--raw", "-p", conversation, "-n", "8", "--grammar-file", grammar}), second);
}

TEST(RunCommandRealModelTest, ADocumentIsReadAndAskedAbout) {
  const std::string path = RealModel(kSmolLm2);
  QEVICT_NEED_MODEL(path);
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "text")
      << "Mira keeps her spare key under the blue flower pot. The road to the mill is long.\n";
  const ProgramRun run =
      RunQevict({"run", "-m", path, "-f", folder.path() / "text", "-p",
                 "Question: Under what does Mira keep her spare key?", "-n", "30"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("flower pot"));
}

}  // namespace
}  // namespace qevict::test
