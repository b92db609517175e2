// The child process of a benchmark: one engine, told line by line what to do. Lines are JSON
// objects, one reply per request, and the parent waits for it before it lets anyone else work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/e2e/bench_engine.h"
#include "core/cancel.h"
#include "core/descriptor.h"
#include "engine/child_process.h"

namespace qevict::bench {

// Run untimed in front of a decode block: the other engine has emptied the caches.
inline constexpr uint32_t kSettleTokens = 2;

// Serves requests from standard input until it ends: the whole life of the child.
Status RunWorker();

struct WorkerConfig {
  std::vector<std::string> command;  // runs this program as a worker, so that it calls RunWorker
  std::string engine;                // kOurs or one of kPeers
  BenchEngineConfig settings;
  std::vector<Token> tokens;  // the prompt and what is decoded behind it
  uint32_t prompt_tokens = 1;
};

enum class DecodeEnd {
  // The sequence is cut back to the prompt, so that every block sees the same context.
  kRewind,
  // For models whose sliding-window layers cannot go back; the context grows from block to block.
  kStay,
};

struct WorkerReport {
  uint64_t kv_bytes = 0, peak_rss_bytes = 0;
  std::string settings;
};

// The parent's end. Belongs to one thread; the destructor ends the child.
class Worker {
 public:
  // Starts the child, which loads the model and runs a few tokens, so that all weights are in
  // memory.
  [[nodiscard]] static Result<Worker> Start(const WorkerConfig& config, const CancelFn& cancel);

  struct Prefilled {
    double seconds = 0.0;
    Token next = 0;
  };
  [[nodiscard]] Result<Prefilled> Prefill();  // empties the sequence first
  [[nodiscard]] Result<double> Decode(uint32_t tokens, DecodeEnd end);  // seconds
  [[nodiscard]] Result<WorkerReport> Report();                          // last
  double CpuSeconds() const;  // that the child has used so far

 private:
  Worker(ChildProcess child, Descriptor log) : child_(std::move(child)), log_(std::move(log)) {}
  [[nodiscard]] Result<std::string> Call(const std::string& request);
  [[nodiscard]] Result<std::string> ReadLine();
  Error Ended();

  ChildProcess child_;
  Descriptor log_;
  std::string engine_, unread_;
  CancelFn cancel_;
};

}  // namespace qevict::bench
