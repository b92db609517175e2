#include "tools/qevict/interrupt.h"

#include <signal.h>

#include <atomic>

namespace qevict::cli {
namespace {

// A signal handler has no other way to reach the program than a global.
std::atomic<int> caught_signal = 0;

void SetHandlers(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  // One at a time: a handler leaves both signals' handlers and the flag in agreement.
  sigaddset(&action.sa_mask, SIGINT);
  sigaddset(&action.sa_mask, SIGTERM);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void OnSignal(int signal) {
  // SIGTERM asks for more than SIGINT does and is never replaced by it.
  if (caught_signal.load(std::memory_order_relaxed) != SIGTERM)
    caught_signal.store(signal, std::memory_order_relaxed);
  SetHandlers(SIG_DFL);
}

}  // namespace

void CatchInterrupts() { SetHandlers(OnSignal); }

bool Interrupted() { return caught_signal.load(std::memory_order_relaxed) != 0; }

bool Terminated() { return caught_signal.load(std::memory_order_relaxed) == SIGTERM; }

void ForgetInterrupt() {
  int interrupt = SIGINT;
  caught_signal.compare_exchange_strong(interrupt, 0);
  if (!Terminated()) CatchInterrupts();
}

}  // namespace qevict::cli
