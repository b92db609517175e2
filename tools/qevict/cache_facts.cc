#include "tools/qevict/cache_facts.h"

#include <fmt/format.h>

#include <utility>

namespace qevict::cli {

Json CacheFacts(const CacheConfig& cache) {
  Json budget;
  if (cache.budget) {
    budget = cache.budget->share > 0.0 ? fmt::format("{:.6g}%", cache.budget->share * 100.0)
                                       : fmt::format("{}", cache.budget->bytes);
  }
  return {{"policy", CachePolicyName(cache.policy)},
          {"kv_budget", std::move(budget)},
          {"kv_type", KvTypeName(cache.kv_type)},
          {"window", cache.geometry.omega},
          {"sinks", cache.geometry.sinks},
          {"local", cache.geometry.local},
          {"kbits", cache.least_key_bits()},
          {"vbits", cache.least_value_bits()},
          {"scoring", ScoringName(cache.scoring())},
          {"promotion", cache.promotion == Promotion::kExpand ? "expand" : "pin"},
          {"prefill", cache.prefill == PrefillMode::kExact ? "exact" : "stream"}};
}

}  // namespace qevict::cli
