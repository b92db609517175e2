// What is the same for all commands: help, errors, exit codes, --json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/cpu_count.h"
#include "tests/tools/program.h"
#include "tools/qevict/exit_status.h"

namespace qevict::cli {
namespace {

using test::ProgramRun;
using test::RunQevict;
using test::RunShell;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::vector<std::vector<std::string>> kCommands = {{"run"},
                                                         {"info"},
                                                         {"models"},
                                                         {"models", "fetch"},
                                                         {"models", "path"},
                                                         {"models", "remove"},
                                                         {"bench"},
                                                         {"version"},
                                                         {"completion"}};

std::vector<std::string> With(std::vector<std::string> command, const std::string& argument) {
  command.push_back(argument);
  return command;
}

bool IsOneLine(const std::string& text) {
  return std::ranges::count(text, '\n') == 1 && text.back() == '\n';
}

TEST(FrameTest, HelpOfEveryCommandShowsExamplesAndJson) {
  for (const auto& command : kCommands) {
    const ProgramRun run = RunQevict(With(command, "--help"));
    EXPECT_EQ(run.exit_code, 0) << command.back();
    EXPECT_THAT(run.out, HasSubstr("\nExamples:\n  ")) << command.back();
    EXPECT_THAT(run.out, HasSubstr("--json")) << command.back();
    EXPECT_EQ(run.err, "") << command.back();
  }
}

TEST(FrameTest, HelpListsTheCommandsAndHidesTheWorker) {
  const ProgramRun run = RunQevict({"--help"});
  EXPECT_EQ(run.exit_code, 0);
  for (const auto& command : kCommands) EXPECT_THAT(run.out, HasSubstr("  " + command.front()));
  EXPECT_THAT(run.out, Not(HasSubstr("bench-worker")));
}

TEST(FrameTest, WithoutACommandItSaysWhatThereIs) {
  const ProgramRun run = RunQevict({});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, HasSubstr("error: a command is missing"));
}

TEST(FrameTest, AnUnknownCommandOrFlagNamesTheNearestOne) {
  const ProgramRun command = RunQevict({"modles"});
  EXPECT_EQ(command.exit_code, 2);
  EXPECT_EQ(command.err,
            "error: unknown command 'modles'; did you mean models? (see qevict --help)\n");

  const ProgramRun nested = RunQevict({"models", "fecth", "smollm2"});
  EXPECT_EQ(nested.exit_code, 2);
  EXPECT_EQ(nested.err,
            "error: unknown command 'fecth'; did you mean fetch? (see qevict models --help)\n");

  // The flag is named although a required one is missing too.
  const ProgramRun flag = RunQevict({"bench", "--contxt=5"});
  EXPECT_EQ(flag.exit_code, 2);
  EXPECT_EQ(flag.err,
            "error: unknown flag '--contxt'; did you mean --context? (see qevict bench --help)\n");

  const ProgramRun far = RunQevict({"version", "--frobnicate"});
  EXPECT_EQ(far.exit_code, 2);
  EXPECT_EQ(far.err, "error: unknown flag '--frobnicate' (see qevict version --help)\n");
  EXPECT_EQ(RunQevict({"modles", "-m", "x"}).err,
            "error: unknown command 'modles'; did you mean models? (see qevict --help)\n");
}

TEST(FrameTest, ImpossibleValuesAreRefusedInOneLine) {
  for (const char* threads : {"-1", "two", "99999999999999999999", ""}) {
    const ProgramRun run = RunQevict({"bench", "-m", "smollm2", "--threads", threads});
    EXPECT_EQ(run.exit_code, 2) << threads;
    EXPECT_TRUE(IsOneLine(run.err)) << run.err;
    EXPECT_THAT(run.err, HasSubstr("--threads")) << threads;
  }
}

TEST(FrameTest, WithJsonAnErrorIsOneObjectOnStandardOutput) {
  const ProgramRun usage = RunQevict({"version", "--json", "--bad"});
  EXPECT_EQ(usage.exit_code, 2);
  EXPECT_EQ(usage.json().at("error").at("code"), "invalid_argument");
  EXPECT_EQ(usage.err, "");

  const ProgramRun absent = RunQevict({"info", "no-such-file.gguf", "--json"});
  EXPECT_EQ(absent.exit_code, 3);
  EXPECT_EQ(absent.json().at("error").at("code"), "not_found");
  EXPECT_THAT(absent.json().at("error").at("message").get<std::string>(),
              HasSubstr("no-such-file.gguf"));
}

TEST(FrameTest, EveryErrorHasItsExitCode) {
  const std::pair<ErrorCode, int> expected[] = {{ErrorCode::kInvalidArgument, 2},
                                                {ErrorCode::kNotFound, 3},
                                                {ErrorCode::kBadFile, 3},
                                                {ErrorCode::kUnsupported, 4},
                                                {ErrorCode::kOutOfMemory, 5},
                                                {ErrorCode::kBudgetExceeded, 5},
                                                {ErrorCode::kContextFull, 5},
                                                {ErrorCode::kCancelled, 130},
                                                {ErrorCode::kIo, 6},
                                                {ErrorCode::kInternal, 1}};
  for (const auto& [code, status] : expected)
    EXPECT_EQ(int(ExitStatusOf(code)), status) << ErrorCodeName(code);
}

TEST(FrameTest, OutputThatCannotBeWrittenIsAnError) {
  const ProgramRun run = RunShell("\"$QEVICT\" models > /dev/full");
  EXPECT_EQ(run.exit_code, 6);
  EXPECT_THAT(run.err, StartsWith("error: standard output cannot be written"));
}

TEST(FrameTest, LongOutputThatCannotBeWrittenIsAnErrorToo) {
  ASSERT_GT(RunQevict({"completion", "zsh"}).out.size(), 4096u) << "more than a stream's buffer";
  const ProgramRun run = RunShell("\"$QEVICT\" completion zsh > /dev/full");
  EXPECT_EQ(run.exit_code, 6);
  EXPECT_THAT(run.err, StartsWith("error: standard output cannot be written"));
}

TEST(FrameTest, AStandardErrorThatTakesNothingChangesNothingElse) {
  const std::string models = RunQevict({"models"}).out;
  for (const std::string redirection : {" 2>/dev/full", " 2>&-"}) {
    EXPECT_EQ(RunShell("\"$QEVICT\"" + redirection).exit_code, 2) << redirection;
    EXPECT_EQ(RunShell("\"$QEVICT\" modles" + redirection).exit_code, 2) << redirection;
    EXPECT_EQ(RunShell("\"$QEVICT\" models > /dev/full" + redirection).exit_code, 6) << redirection;
    const ProgramRun run = RunShell("\"$QEVICT\" models" + redirection);
    EXPECT_EQ(run.exit_code, 0) << redirection;
    EXPECT_EQ(run.out, models) << redirection;
  }
}

TEST(FrameTest, AClosedStandardOutputIsAnError) {
  const ProgramRun run = RunShell("\"$QEVICT\" models >&-");
  EXPECT_EQ(run.exit_code, 6);
  EXPECT_THAT(run.err, StartsWith("error: standard output cannot be written"));
}

TEST(FrameTest, MoreThreadsThanTheEngineTakesAreRefusedByEveryCommand) {
  const std::string most = std::to_string(kMostThreads), more = std::to_string(kMostThreads + 1);
  const std::vector<std::string> bench = {"bench", "-m", "no-such-file.gguf"},
                                 run = {"run", "-m", "no-such-file.gguf", "-p", "x"};
  for (const auto& command : {bench, run}) {
    EXPECT_EQ(RunQevict(With(command, "--threads=" + most)).exit_code, 3) << command[0];
    const ProgramRun refused = RunQevict(With(command, "--threads=" + more));
    EXPECT_EQ(refused.exit_code, 2) << command[0];
    EXPECT_THAT(refused.err, HasSubstr("--threads")) << command[0];
  }
}

TEST(VersionTest, SaysWhatTheBuildContains) {
  const ProgramRun text = RunQevict({"--version"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, StartsWith("qevict "));

  const ProgramRun run = RunQevict({"version", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto json = run.json();
  EXPECT_THAT(text.out, HasSubstr(json.at("version").get<std::string>()));
  EXPECT_FALSE(json.at("commit").get<std::string>().empty());
  EXPECT_FALSE(json.at("compiler").get<std::string>().empty());
  EXPECT_FALSE(json.at("ggml").at("version").get<std::string>().empty());
  const auto available = json.at("isa").at("available").get<std::vector<std::string>>();
  EXPECT_EQ(available.back(), "scalar");
  EXPECT_THAT(available, ::testing::Contains(json.at("isa").at("used").get<std::string>()));
}

TEST(VersionTest, TheForcedIsaIsShownAndAnUnknownOneRefused) {
  const ProgramRun scalar = RunShell("QEVICT_ISA=scalar \"$QEVICT\" version --json");
  EXPECT_EQ(scalar.json().at("isa").at("used"), "scalar");
  const ProgramRun unknown = RunShell("QEVICT_ISA=sse9 \"$QEVICT\" version");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("sse9"));
}

}  // namespace
}  // namespace qevict::cli
