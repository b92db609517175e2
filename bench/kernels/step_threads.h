// Threads that take the steps of a benchmark together, timed from outside: what a step costs is the
// time until the last of them is done.
#pragma once

#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

namespace qevict {

class StepThreads {
 public:
  using Work = std::function<void(size_t thread)>;

  StepThreads(size_t threads, Work work) : work_(std::move(work)), barrier_(ptrdiff_t(threads)) {
    for (size_t t = 1; t < threads; ++t) {
      pool_.emplace_back([this, t] {
        for (;;) {
          barrier_.arrive_and_wait();
          if (done_) return;
          work_(t);
          barrier_.arrive_and_wait();
        }
      });
    }
  }
  ~StepThreads() {
    done_ = true;
    barrier_.arrive_and_wait();
  }

  // Seconds of one step.
  double Run() {
    const auto start = std::chrono::steady_clock::now();
    barrier_.arrive_and_wait();
    work_(0);
    barrier_.arrive_and_wait();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  Work work_;
  std::barrier<> barrier_;
  std::atomic<bool> done_ = false;
  std::vector<std::jthread> pool_;  // last: joined before what they use goes
};

}  // namespace qevict
