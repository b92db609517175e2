#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "model/thread_wait.h"
#include "tools/qevict/command.h"
#include "tools/qevict/exit_status.h"

namespace {

// The next file that is opened gets the number of a closed standard stream, and messages end up in
// it, a model's file for example. So closed ones are taken first, in the mode that keeps reading or
// writing them the error that it was.
void TakeClosedStandardStreams() {
  constexpr int kWrongModes[] = {O_WRONLY, O_RDONLY, O_RDONLY};
  for (int fd = 0; fd < 3; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    if (open("/dev/null", kWrongModes[fd]) != fd) _exit(int(qevict::cli::ExitStatus::kIo));
  }
}

// A model is read through a mapping: when its file is cut short under it, the kernel can only kill.
void OnBusError(int /*signal*/) {
  constexpr char kMessage[] =
      "error: a file that is in use was cut short or cannot be read from its disk any more; put it "
      "back and start again\n";
  // Nothing can be done about an error here.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(int(qevict::cli::ExitStatus::kFile));
}

}  // namespace

int main(int argc, char** argv) {
  qevict::BoundThreadSpinning(argv);
  TakeClosedStandardStreams();
  signal(SIGBUS, OnBusError);
  signal(SIGXFSZ, SIG_IGN);  // a file at its limit (ulimit -f) is an error of its writer
  qevict::cli::CommandLine line;
  qevict::cli::AddAllCommands(line);
  return line.Run(argc, argv);
}
