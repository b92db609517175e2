// A program run as a child: its streams go where the caller says, and it never outlives its object,
// the thread that started it, or this process.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "qevict/status.h"

namespace qevict {

struct ChildConfig {
  // Program (looked up in PATH unless it has a '/') and arguments.
  std::vector<std::string> command;
  // "NAME=value", set on top of this process's own.
  std::vector<std::string> environment;
  enum class Streams {
    kLogged,  // stdin empty, stdout and stderr into log_path
    kPiped,   // stdin and stdout are pipes to this process, stderr goes into log_path
  } streams = Streams::kLogged;
  std::string log_path;  // created or emptied
};

struct ChildExit {
  int exit_code = 0;  // 128 + signal when a signal ended it
  uint64_t peak_rss_bytes = 0;
};

// Belongs to the thread that started it: Linux kills the child when that thread ends, also when
// others of the process go on. Move-only; the destructor kills the child if it still runs.
class ChildProcess {
 public:
  // Errors: kNotFound (no such program), kIo.
  [[nodiscard]] static Result<ChildProcess> Start(const ChildConfig& config);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  int stdin_fd() const { return stdin_fd_; }    // -1 unless kPiped
  int stdout_fd() const { return stdout_fd_; }  // -1 unless kPiped
  // nullopt: still running.
  std::optional<ChildExit> Poll();
  ChildExit Wait();

 private:
  ChildProcess() = default;
  pid_t pid_ = -1;
  int stdin_fd_ = -1, stdout_fd_ = -1;
  std::optional<ChildExit> exit_;
};

}  // namespace qevict
