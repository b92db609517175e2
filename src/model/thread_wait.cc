#include "model/thread_wait.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace qevict {

void BoundThreadSpinning(char** argv) {
  if (std::getenv(kSpinVariable) != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  // By its own path: started through /proc/self/exe it would be called "exe" in lists of processes.
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (length < 0) return;
  path[length] = '\0';
  if (setenv(kSpinVariable, kBoundedSpins, 1) != 0) return;
  execv(path, argv);
  unsetenv(kSpinVariable);
}

}  // namespace qevict
