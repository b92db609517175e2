#include "engine/child_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "tests/support/process_gone.h"
#include "tests/support/temporary_folder.h"

namespace qevict {
namespace {

using test::IsGone;
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

// A signal handler that does nothing and interrupts what waits, ten thousand times a second.
class Interruptions {
 public:
  Interruptions() {
    struct sigaction action {};
    action.sa_handler = [](int) {};  // and without SA_RESTART
    sigaction(SIGALRM, &action, &old_action_);
    const itimerval often = {{0, 100}, {0, 100}};
    setitimer(ITIMER_REAL, &often, nullptr);
  }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;
  ~Interruptions() {
    const itimerval never = {};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &old_action_, nullptr);
  }

 private:
  struct sigaction old_action_ {};
};

TEST(ChildProcessTest, AnErrorOfTheStartIsSeenThoughSignalsArriveMeanwhile) {
  const TemporaryFolder folder;
  ChildConfig config = Shell(folder, "");
  config.command = {"qevict-no-such-program"};
  const Interruptions interruptions;
  for (int i = 0; i < 100; ++i) {
    const auto child = ChildProcess::Start(config);
    ASSERT_FALSE(child) << "round " << i;
    ASSERT_EQ(child.error().code, ErrorCode::kNotFound) << child.error().message;
  }
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

TEST(ChildProcessTest, ReplacingAChildEndsTheOldOneWhileTheMovedFromObjectLives) {
  const TemporaryFolder folder;
  ChildProcess child = ChildProcess::Start(Shell(folder, "exec sleep 100")).value();
  ChildProcess other = ChildProcess::Start(Shell(folder, "exec sleep 100")).value();
  const pid_t old = child.pid(), kept = other.pid();
  child = std::move(other);
  EXPECT_TRUE(IsGone(old));
  EXPECT_EQ(child.pid(), kept);
  EXPECT_FALSE(child.Poll().has_value());
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
