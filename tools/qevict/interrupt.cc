#include "tools/qevict/interrupt.h"

#include <signal.h>

#include <atomic>

namespace qevict::cli {
namespace {

// A signal handler has no other way to reach the program than a global.
std::atomic<int> caught_signal = 0;

void OnSignal(int signal) { caught_signal.store(signal, std::memory_order_relaxed); }

}  // namespace

void CatchInterrupts() {
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = int(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool Interrupted() { return caught_signal.load(std::memory_order_relaxed) != 0; }

bool Terminated() { return caught_signal.load(std::memory_order_relaxed) == SIGTERM; }

void ForgetInterrupt() {
  int interrupt = SIGINT;
  caught_signal.compare_exchange_strong(interrupt, 0);
  CatchInterrupts();
}

}  // namespace qevict::cli
