// libllama on the same file, set up as well as it can be on a CPU: flash attention, f16 keys and
// values, repacked weights; or with prompts' products by weights that are not repacked left to its
// BLAS backend.
#pragma once

#include "bench/e2e/bench_engine.h"

namespace qevict::bench {

enum class LlamaProducts {
  kOwn,
  // Needs a libllama that was built with a BLAS backend: kUnsupported without.
  kBlas,
};
[[nodiscard]] Result<std::unique_ptr<BenchEngine>> LoadLlamaPeer(const BenchEngineConfig& config,
                                                                 LlamaProducts products);

}  // namespace qevict::bench
