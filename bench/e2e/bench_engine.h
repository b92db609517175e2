// An engine as the end-to-end benchmark drives it: one model, one sequence, a next token out.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "engine/cache_config.h"
#include "model/token.h"
#include "qevict/status.h"

namespace qevict::bench {

// What every engine is given. Options of one engine only travel in the worker's first line
// (worker.cc) like the others and mean nothing to the rest.
struct BenchEngineConfig {
  std::string model_path;
  uint32_t threads = 1;
  uint32_t capacity_tokens = 0;
  uint32_t chunk_tokens = 0;  // tokens per prefill step; 0: the engine's own best
  CacheConfig cache = {};     // of kOurs
};

class BenchEngine {
 public:
  virtual ~BenchEngine() = default;
  // Runs the tokens behind those that the sequence holds and computes the logits of the last one.
  virtual Status Append(std::span<const Token> tokens) = 0;
  virtual Status Truncate(uint32_t size_tokens) = 0;
  virtual Token NextToken() const = 0;  // of the last logits, greedy
  // Allocated for keys and values. May be slow and use memory: asked last.
  [[nodiscard]] virtual Result<uint64_t> KvBytes() = 0;
  virtual std::string Settings() const = 0;  // for the report
};

inline constexpr std::string_view kOurs = "qevict";
// Values of --against. "full": our own engine with every token in f16. The last two are programs of
// their own (peer_program.h).
inline constexpr std::string_view kPeers[] = {"llama.cpp", "full", "openvino", "llama.cpp-blas"};

// The engines of the qevict program: kOurs, "llama.cpp" and "full". Errors: those of loading;
// kInvalidArgument: no such engine.
[[nodiscard]] Result<std::unique_ptr<BenchEngine>> LoadBenchEngine(std::string_view name,
                                                                   const BenchEngineConfig& config);

}  // namespace qevict::bench
