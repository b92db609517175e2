// Whether another process has ended.
#pragma once

#include <signal.h>

#include <chrono>
#include <thread>

namespace qevict::test {

// Waits up to two seconds for it.
inline bool IsGone(pid_t pid) {
  for (int i = 0; i < 100; ++i) {
    if (kill(pid, 0) != 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

}  // namespace qevict::test
