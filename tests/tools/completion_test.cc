#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "engine/model_catalog.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/program.h"

namespace qevict::cli {
namespace {

using test::ProgramRun;
using test::RunQevict;
using test::RunShell;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAreArray;

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const CatalogModel& model : Catalog()) names.emplace_back(model.name);
  return names;
}

// What bash offers for the last of `words`, which are the words of the line as bash splits them.
std::vector<std::string> BashOffers(const std::string& words, const std::string& folder = "/") {
  const ProgramRun run = RunShell(
      "cd " + folder + "; source <(\"$QEVICT\" completion bash); COMP_WORDS=(qevict " + words +
      "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _qevict; printf '%s\\n' \"${COMPREPLY[@]}\"");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.err, "");
  std::vector<std::string> offers = Lines(run.out);
  std::erase(offers, "");
  return offers;
}

TEST(BashCompletionTest, OffersCommandsFlagsAndChoices) {
  EXPECT_THAT(BashOffers("mo"), ElementsAre("models"));
  EXPECT_THAT(BashOffers("models ''"), ElementsAre("fetch", "path", "remove"));
  EXPECT_THAT(BashOffers("models fetch --f"), ElementsAre("--force"));
  EXPECT_THAT(BashOffers("completion ''"), ElementsAre("bash", "zsh", "fish"));
  EXPECT_THAT(BashOffers("bench --against ''"),
              ElementsAre("llama.cpp", "full", "openvino", "llama.cpp-blas"));
  EXPECT_THAT(BashOffers("run --policy ''"),
              ElementsAre("auto", "qevict", "evict", "quant", "full"));
  EXPECT_THAT(BashOffers("run --prefill ''"), ElementsAre("exact", "stream"));
  EXPECT_THAT(BashOffers("fidelity --codec ''"), IsEmpty());
  EXPECT_THAT(BashOffers("bench --th"), ElementsAre("--threads"));
  EXPECT_THAT(BashOffers("''"), Not(Contains("bench-worker")));
}

TEST(BashCompletionTest, OffersModelNamesWhereOneMayStand) {
  EXPECT_THAT(BashOffers("models fetch ''"), UnorderedElementsAreArray(ModelNames()));
  EXPECT_THAT(BashOffers("models path qw"),
              ElementsAre("qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"));
  EXPECT_THAT(BashOffers("info smo"), ElementsAre("smollm2"));
  EXPECT_THAT(BashOffers("bench -m gem"), ElementsAre("gemma3-270m"));
  EXPECT_THAT(BashOffers("bench --model = gem"), ElementsAre("gemma3-270m"))
      << "--model=gem, as readline splits it";
}

TEST(BashCompletionTest, OffersFilesBesideModelNamesAndNothingForNumbers) {
  const test::TemporaryFolder folder;
  std::ofstream(folder.path() / "my model.gguf") << "x";
  EXPECT_THAT(BashOffers("info my", folder.path()), ElementsAre("my model.gguf"));
  EXPECT_THAT(BashOffers("bench -f my", folder.path()), ElementsAre("my model.gguf"));
  EXPECT_THAT(BashOffers("bench --threads my", folder.path()), IsEmpty());
}

// The shells that are there must at least be able to read their script.
class CompletionSyntaxTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CompletionSyntaxTest, TheShellReadsTheScript) {
  const std::string shell = GetParam();
  if (RunShell("command -v " + shell).exit_code != 0) GTEST_SKIP() << shell << " is not installed";
  const test::TemporaryFolder folder;
  const std::string script = (folder.path() / "script").string();
  const ProgramRun run = RunShell("\"$QEVICT\" completion " + shell + " > " + script + " && " +
                                  shell + " -n " + script);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err, "");
}

INSTANTIATE_TEST_SUITE_P(Shells, CompletionSyntaxTest, ::testing::Values("bash", "zsh", "fish"),
                         [](const auto& test) { return std::string(test.param); });

TEST(FishCompletionTest, OffersModelNames) {
  if (RunShell("command -v fish").exit_code != 0) GTEST_SKIP() << "fish is not installed";
  const ProgramRun run = RunShell(
      "PATH=$(dirname \"$QEVICT\"):$PATH fish -c 'qevict completion fish | source; complete -C "
      "\"qevict models fetch q\"'");
  EXPECT_THAT(Lines(run.out), ElementsAre("qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"));
}

TEST(CompletionTest, AnUnknownShellIsRefused) {
  const ProgramRun run = RunQevict({"completion", "csh"});
  EXPECT_EQ(run.exit_code, 2);
}

}  // namespace
}  // namespace qevict::cli
