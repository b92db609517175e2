#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/model_catalog.h"
#include "tests/engine/fake_pip.h"
#include "tests/tools/program.h"

namespace qevict::cli {
namespace {

using test::FakePip;
using test::ProgramRun;
using test::RunQevict;
using test::RunShell;
using test::ScopedEnvironment;
using test::TemporaryFolder;
using ::testing::HasSubstr;

// A cache folder of its own and a pip that has nothing.
class ModelsCommandTest : public ::testing::Test {
 protected:
  ModelsCommandTest() : cache_("QEVICT_CACHE", folder_.path().string()) {}
  void PretendThatItIsThere(std::string_view name) {
    const CatalogModel& model = *FindCatalogModel(name);
    std::filesystem::create_directories(ModelFolder());
    std::ofstream(CatalogPath(model)).put('x');
    std::filesystem::resize_file(CatalogPath(model), model.file_bytes);  // sparse
  }
  TemporaryFolder folder_;
  ScopedEnvironment cache_;
  FakePip pip_;
};

TEST_F(ModelsCommandTest, ListsWhatThereIsAndWhatIsHere) {
  PretendThatItIsThere("smollm2");
  const auto json = RunQevict({"models", "--json"}).json();
  ASSERT_EQ(json.at("models").size(), Catalog().size());
  for (const auto& model : json.at("models")) {
    EXPECT_EQ(model.at("present"), model.at("name") == "smollm2");
    EXPECT_FALSE(model.at("licence").get<std::string>().empty());
  }
  const ProgramRun text = RunQevict({"models"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("gemma3-270m"));
  EXPECT_THAT(text.out, HasSubstr(folder_.path().string()));
}

TEST_F(ModelsCommandTest, PathIsPrintedAloneForUseInAShell) {
  const ProgramRun absent = RunQevict({"models", "path", "smollm2"});
  EXPECT_EQ(absent.exit_code, 3);
  EXPECT_THAT(absent.err, HasSubstr("qevict models fetch smollm2"));
  PretendThatItIsThere("smollm2");
  const ProgramRun there = RunQevict({"models", "path", "smollm2"});
  EXPECT_EQ(there.exit_code, 0);
  EXPECT_EQ(there.out, CatalogPath(*FindCatalogModel("smollm2")) + "\n");
}

TEST_F(ModelsCommandTest, AnUnknownNameSuggestsOne) {
  const ProgramRun run = RunQevict({"models", "fetch", "smolm2"});
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_EQ(run.err, "error: there is no model 'smolm2'; did you mean smollm2?\n");
}

TEST_F(ModelsCommandTest, AFailedFetchIsOneSentenceAndExitsWithSix) {
  pip_.SetBehaviour("echo 'WARNING: Retrying: NewConnectionError' >&2; exit 1");
  const ProgramRun run = RunQevict({"models", "fetch", "smollm2", "--json"});
  EXPECT_EQ(run.exit_code, 6);
  EXPECT_EQ(run.json().at("error").at("code"), "io");
  EXPECT_THAT(run.json().at("error").at("message").get<std::string>(),
              HasSubstr("there is no network"));
}

TEST_F(ModelsCommandTest, AStandardErrorThatTakesNothingDoesNotEndAFetch) {
  pip_.SetBehaviour("echo 'WARNING: Retrying: NewConnectionError' >&2; exit 1");
  for (const char* redirection : {"2>/dev/full", "2>&-"}) {
    const ProgramRun run =
        RunShell("\"$QEVICT\" models fetch smollm2 --json " + std::string(redirection));
    EXPECT_EQ(run.exit_code, 6) << redirection;
    EXPECT_EQ(run.json().at("error").at("code"), "io") << redirection;
  }
}

// Else the model's file could be opened as one of them, and messages would go into it.
TEST_F(ModelsCommandTest, NoFileGetsTheNumberOfAClosedStandardStream) {
  pip_.SetBehaviour(
      "readlink /proc/$PPID/fd/0 /proc/$PPID/fd/1 /proc/$PPID/fd/2 > \"$here/open\"; "
      "exit 1");
  EXPECT_EQ(RunShell("\"$QEVICT\" models fetch smollm2 <&- >&- 2>&-").exit_code, 6);
  std::ifstream file(pip_.folder() / "open");
  const std::string streams(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(streams, "/dev/null\n/dev/null\n/dev/null\n");
}

TEST_F(ModelsCommandTest, WithoutAHomeTheFolderIsAskedFor) {
  for (const char* command : {"", "fetch smollm2", "path smollm2", "remove smollm2"}) {
    const ProgramRun run = RunShell(
        "env -u HOME -u XDG_CACHE_HOME -u QEVICT_CACHE \"$QEVICT\" models " + std::string(command));
    EXPECT_EQ(run.exit_code, 2) << command;
    EXPECT_THAT(run.err, HasSubstr("set QEVICT_CACHE")) << command;
  }
}

TEST_F(ModelsCommandTest, ControlCEndsAFetchCleanly) {
  pip_.SetBehaviour("touch \"$here/started\"; exec sleep 100");
  const ProgramRun run = RunShell("\"$QEVICT\" models fetch smollm2 & pid=$!; until [ -e '" +
                                  (pip_.folder() / "started").string() +
                                  "' ]; do sleep 0.05; done; kill -INT $pid; wait $pid");
  EXPECT_EQ(run.exit_code, 130);
  EXPECT_THAT(run.err, HasSubstr("error: the fetch was stopped"));
  EXPECT_FALSE(std::filesystem::exists(CatalogPath(*FindCatalogModel("smollm2"))));
}

TEST_F(ModelsCommandTest, RemoveFreesTheSpace) {
  EXPECT_EQ(RunQevict({"models", "remove", "gemma3-270m"}).exit_code, 3);
  PretendThatItIsThere("gemma3-270m");
  EXPECT_EQ(RunQevict({"models", "remove", "gemma3-270m"}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_empty(ModelFolder()));
}

}  // namespace
}  // namespace qevict::cli
