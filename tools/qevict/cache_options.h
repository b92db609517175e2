// The flags that say how a sequence's cache is kept; the same for every command that runs a model.
#pragma once

#include "engine/cache_config.h"
#include "engine/engine.h"
#include "tools/qevict/cli_fwd.h"

namespace qevict::cli {

// A value that cannot be parsed ends as CLI11's own error, with the flag's name.
void AddCacheFlags(CLI::App& command, CacheConfig& cache);
void AddAttentionFlag(CLI::App& command, AttentionKind& attention);
void AddProductsFlag(CLI::App& command, Products& products);

}  // namespace qevict::cli
