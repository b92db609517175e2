// The child process of a benchmark: one engine, told line by line what to do. Lines are JSON
// objects, one reply per request, and the parent waits for it before it lets anyone else work.
// bench/peers/openvino_peer.py serves the same requests, with the limits that it names.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/e2e/bench_engine.h"
#include "core/cancel.h"
#include "core/descriptor.h"
#include "engine/child_process.h"

namespace qevict::bench {

// Run untimed in front of a decode block: the other engine has emptied the caches.
inline constexpr uint32_t kSettleTokens = 2;

// Raised when requests or replies change: a peer that was built before says so.
inline constexpr int kWorkerProtocol = 1;

using LoadFn = Result<std::unique_ptr<BenchEngine>> (*)(std::string_view name,
                                                        const BenchEngineConfig& config);
// Serves requests from standard input until it ends: the whole life of the child. `load` makes the
// engine that the first one names.
Status RunWorker(LoadFn load);

struct WorkerConfig {
  std::vector<std::string> command;  // of a program that calls RunWorker or serves as it does
  std::string engine;                // kOurs or one of kPeers
  BenchEngineConfig settings;
  std::vector<Token> tokens;  // the prompt and what is decoded behind it
  uint32_t prompt_tokens = 1;
};

enum class DecodeEnd {
  // The sequence is cut back to the prompt, so that every block sees the same context.
  kRewind,
  // For models whose sliding-window layers cannot go back, and for caches that route; the context
  // grows from block to block.
  kStay,
};

struct WorkerReport {
  std::optional<uint64_t> kv_bytes;  // nullopt: the engine does not say
  uint64_t peak_rss_bytes = 0;
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
