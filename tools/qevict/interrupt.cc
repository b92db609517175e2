#include "tools/qevict/interrupt.h"

#include <signal.h>

#include <atomic>

namespace qevict::cli {
namespace {

// A signal handler has no other way to reach the program than a global.
std::atomic<bool> interrupted = false;

void OnSignal(int) { interrupted.store(true, std::memory_order_relaxed); }

}  // namespace

void CatchInterrupts() {
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = int(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool Interrupted() { return interrupted.load(std::memory_order_relaxed); }

}  // namespace qevict::cli
