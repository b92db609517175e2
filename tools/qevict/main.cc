#include <fcntl.h>
#include <unistd.h>

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

}  // namespace

int main(int argc, char** argv) {
  TakeClosedStandardStreams();
  qevict::cli::CommandLine line;
  qevict::cli::AddAllCommands(line);
  return line.Run(argc, argv);
}
