#include "bench/e2e/bench_engine.h"

#include <fmt/format.h>

#include "bench/e2e/llama_peer.h"
#include "bench/e2e/own_engine.h"

namespace qevict::bench {

Result<std::unique_ptr<BenchEngine>> LoadBenchEngine(std::string_view name,
                                                     const BenchEngineConfig& config) {
  if (name == kOurs) return LoadOwnEngine(config);
  if (name == "full") {
    BenchEngineConfig full = config;
    full.cache = {.policy = CachePolicy::kFull};
    return LoadOwnEngine(full);
  }
  if (name == "llama.cpp") return LoadLlamaPeer(config, LlamaProducts::kOwn);
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("there is no engine '{}' to compare with", name));
}

}  // namespace qevict::bench
