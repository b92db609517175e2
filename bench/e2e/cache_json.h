// The options of a cache on their way from the benchmark to its worker, which is the same program.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/cache_config.h"
#include "qevict/status.h"

namespace qevict::bench {

nlohmann::json CacheJson(const CacheConfig& cache);
// What CacheJson was made of. Error kInvalidArgument: a policy without a name. Throws
// nlohmann::json::exception where an option is missing or of another type.
Result<CacheConfig> ReadCacheJson(const nlohmann::json& json);

}  // namespace qevict::bench
