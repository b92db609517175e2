#include "engine/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/descriptor.h"

extern char** environ;

namespace qevict {
namespace {

struct Pipe {
  Descriptor read, write;
};

Result<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return Fail(ErrorCode::kIo, fmt::format("cannot make a pipe ({})", std::strerror(errno)));
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> MergedEnvironment(const std::vector<std::string>& added) {
  std::vector<std::string> merged = added;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    bool replaced = false;
    for (const std::string& other : added) replaced |= other.starts_with(name);
    if (!replaced) merged.emplace_back(text);
  }
  return merged;
}

// What the child does between fork and exec; only async-signal-safe calls. Everything it needs is
// made before the fork.
struct Launch {
  std::vector<char*> command, environment;
  int in, out, log, report;  // report: receives errno when exec fails
  pid_t parent;
};

[[noreturn]] void Exec(const Launch& launch) {
  // Dies with its parent, also when that one is killed and cannot clean up.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() == launch.parent && dup2(launch.in, 0) >= 0 && dup2(launch.out, 1) >= 0 &&
      dup2(launch.log, 2) >= 0) {
    execvpe(launch.command[0], launch.command.data(), launch.environment.data());
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(launch.report, &error, sizeof(error));
  _exit(127);
}

ChildExit Outcome(int status, const rusage& usage) {
  return {.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
          .peak_rss_bytes = uint64_t(usage.ru_maxrss) * 1024};
}

}  // namespace

Result<ChildProcess> ChildProcess::Start(const ChildConfig& config) {
  const bool piped = config.streams == ChildConfig::Streams::kPiped;
  Descriptor log(open(config.log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (log.get() < 0)
    return Fail(ErrorCode::kIo,
                fmt::format("cannot write {} ({})", config.log_path, std::strerror(errno)));
  Descriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  QEVICT_ASSIGN_OR_RETURN(Pipe input, MakePipe());
  QEVICT_ASSIGN_OR_RETURN(Pipe output, MakePipe());
  QEVICT_ASSIGN_OR_RETURN(Pipe report, MakePipe());

  std::vector<std::string> command = config.command;
  std::vector<std::string> environment = MergedEnvironment(config.environment);
  const Launch launch = {.command = Pointers(command),
                         .environment = Pointers(environment),
                         .in = piped ? input.read.get() : nothing.get(),
                         .out = piped ? output.write.get() : log.get(),
                         .log = log.get(),
                         .report = report.write.get(),
                         .parent = getpid()};
  const pid_t pid = fork();
  if (pid == 0) Exec(launch);
  if (pid < 0)
    return Fail(ErrorCode::kIo, fmt::format("cannot start a process ({})", std::strerror(errno)));

  ChildProcess child;
  child.pid_ = pid;
  report.write = Descriptor();
  int error = 0;
  ssize_t bytes = 0;
  do {
    bytes = read(report.read.get(), &error, sizeof(error));
  } while (bytes < 0 && errno == EINTR);  // a signal of this process says nothing about the child
  if (bytes == ssize_t(sizeof(error))) {
    return Fail(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                fmt::format("cannot run {} ({})", config.command[0], std::strerror(error)));
  }
  if (piped) {
    child.stdin_fd_ = input.write.Release();
    child.stdout_fd_ = output.read.Release();
  }
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      stdin_fd_(std::exchange(other.stdin_fd_, -1)),
      stdout_fd_(std::exchange(other.stdout_fd_, -1)),
      exit_(other.exit_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  ChildProcess taken(std::move(other));
  std::swap(pid_, taken.pid_);
  std::swap(stdin_fd_, taken.stdin_fd_);
  std::swap(stdout_fd_, taken.stdout_fd_);
  std::swap(exit_, taken.exit_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0 && !exit_) {
    kill(pid_, SIGKILL);
    Wait();
  }
  if (stdin_fd_ >= 0) close(stdin_fd_);
  if (stdout_fd_ >= 0) close(stdout_fd_);
}

std::optional<ChildExit> ChildProcess::Poll() {
  int status = 0;
  rusage usage{};
  if (!exit_ && wait4(pid_, &status, WNOHANG, &usage) == pid_) exit_ = Outcome(status, usage);
  return exit_;
}

ChildExit ChildProcess::Wait() {
  int status = 0;
  rusage usage{};
  while (!exit_) {
    const pid_t ended = wait4(pid_, &status, 0, &usage);
    if (ended == pid_) exit_ = Outcome(status, usage);
    if (ended < 0 && errno != EINTR) exit_ = ChildExit{.exit_code = 127};
  }
  return *exit_;
}

}  // namespace qevict
