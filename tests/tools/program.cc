#include "tests/tools/program.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "core/check.h"
#include "tests/support/temporary_folder.h"

namespace qevict::test {
namespace {

std::string Content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

ProgramRun RunCommand(std::vector<std::string> command) {
  const TemporaryFolder folder;
  const std::string out = folder.path() / "out", err = folder.path() / "err";
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    setenv("QEVICT", QEVICT_PROGRAM, 1);
    if (std::freopen("/dev/null", "r", stdin) && std::freopen(out.c_str(), "w", stdout) &&
        std::freopen(err.c_str(), "w", stderr)) {
      execvp(arguments[0], arguments.data());
    }
    _exit(127);
  }
  int status = 0;
  rusage usage = {};
  QEVICT_CHECK_EQ(wait4(pid, &status, 0, &usage), pid);
  return {.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
          .out = Content(out),
          .err = Content(err),
          .peak_resident_bytes = uint64_t(usage.ru_maxrss) * 1024};
}

}  // namespace

ProgramRun RunQevict(const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {QEVICT_PROGRAM};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return RunCommand(std::move(command));
}

ProgramRun RunShell(const std::string& command) { return RunCommand({"bash", "-c", command}); }

}  // namespace qevict::test
