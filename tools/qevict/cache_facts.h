// A cache's configuration as JSON, for everything that says what was measured.
#pragma once

#include "engine/cache_config.h"
#include "tools/qevict/json_output.h"

namespace qevict::cli {

// Keys and values as the flags have them (docs/command-line.md); `kv_budget` is null without one,
// `scoring` one text.
Json CacheFacts(const CacheConfig& cache);

}  // namespace qevict::cli
