#include "model/thread_wait.h"

#include <unistd.h>

#include <cstdlib>

namespace qevict {

void BoundThreadSpinning(char** argv) {
  if (std::getenv(kSpinVariable) != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  if (setenv(kSpinVariable, kBoundedSpins, 1) == 0) execv("/proc/self/exe", argv);
}

}  // namespace qevict
