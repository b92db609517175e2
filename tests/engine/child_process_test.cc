#include "engine/child_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <thread>

#include "tests/support/temporary_folder.h"

namespace qevict {
namespace {

using test::TemporaryFolder;

ChildConfig Shell(const TemporaryFolder& folder, const std::string& script) {
  return {.command = {"sh", "-c", script},
          .environment = {},
          .log_path = (folder.path() / "log").string()};
}

std::string Log(const TemporaryFolder& folder) {
  std::ifstream file(folder.path() / "log");
  return {std::istreambuf_iterator<char>(file), {}};
}

bool IsGone(pid_t pid) {
  for (int i = 0; i < 100; ++i) {
    if (kill(pid, 0) != 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

TEST(ChildProcessTest, OutputAndExitCodeComeBack) {
  const TemporaryFolder folder;
  ChildConfig config = Shell(folder, "echo $COLOUR; echo wrong >&2; exit 7");
  config.environment = {"COLOUR=blue"};
  ChildProcess child = ChildProcess::Start(config).value();
  EXPECT_EQ(child.Wait().exit_code, 7);
  EXPECT_EQ(Log(folder), "blue\nwrong\n");
}

TEST(ChildProcessTest, ASignalIsReportedAsTheShellDoes) {
  const TemporaryFolder folder;
  ChildProcess child = ChildProcess::Start(Shell(folder, "kill -TERM $$")).value();
  EXPECT_EQ(child.Wait().exit_code, 128 + SIGTERM);
}

TEST(ChildProcessTest, AProgramThatIsNotInstalledIsNotFound) {
  const TemporaryFolder folder;
  ChildConfig config = Shell(folder, "");
  config.command = {"qevict-no-such-program"};
  const auto child = ChildProcess::Start(config);
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().code, ErrorCode::kNotFound);
}

TEST(ChildProcessTest, PipesCarryLinesBothWays) {
  const TemporaryFolder folder;
  ChildConfig config = Shell(folder, "read word; echo \"got $word\"");
  config.streams = ChildConfig::Streams::kPiped;
  ChildProcess child = ChildProcess::Start(config).value();
  ASSERT_EQ(write(child.stdin_fd(), "moin\n", 5), 5);
  char reply[64] = {};
  ASSERT_EQ(read(child.stdout_fd(), reply, sizeof(reply)), 9);
  EXPECT_STREQ(reply, "got moin\n");
  EXPECT_EQ(child.Wait().exit_code, 0);
}

TEST(ChildProcessTest, TheDestructorEndsTheChild) {
  const TemporaryFolder folder;
  pid_t pid = 0;
  {
    ChildProcess child = ChildProcess::Start(Shell(folder, "exec sleep 100")).value();
    pid = child.pid();
    EXPECT_FALSE(child.Poll().has_value());
  }
  EXPECT_TRUE(IsGone(pid));
}

TEST(ChildProcessTest, PeakMemoryIsThatOfTheChild) {
  const TemporaryFolder folder;
  // dd holds one buffer of its block size.
  ChildProcess child =
      ChildProcess::Start(Shell(folder, "exec dd if=/dev/zero of=/dev/null bs=64M count=1"))
          .value();
  const ChildExit exit = child.Wait();
  EXPECT_GT(exit.peak_rss_bytes, 64'000'000u);
  EXPECT_LT(exit.peak_rss_bytes, 96'000'000u);
}

}  // namespace
}  // namespace qevict
