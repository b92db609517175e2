// libllama on the same file, set up as well as it can be on a CPU: flash attention, f16 keys and
// values, repacked weights.
#pragma once

#include "bench/e2e/bench_engine.h"

namespace qevict::bench {

[[nodiscard]] Result<std::unique_ptr<BenchEngine>> LoadLlamaPeer(const BenchEngineConfig& config);

}  // namespace qevict::bench
