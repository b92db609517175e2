#pragma once

#include "bench/e2e/bench_engine.h"

namespace qevict::bench {

[[nodiscard]] Result<std::unique_ptr<BenchEngine>> LoadOwnEngine(const BenchEngineConfig& config);

}  // namespace qevict::bench
