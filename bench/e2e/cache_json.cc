#include "bench/e2e/cache_json.h"

#include <optional>

namespace qevict::bench {
namespace {

using Json = nlohmann::json;

// Enumerations travel as numbers, what was not chosen as null.
template <typename T>
Json Number(const std::optional<T>& value) {
  return value ? Json(uint32_t(*value)) : Json();
}
template <typename T>
std::optional<T> ReadNumber(const Json& json) {
  if (json.is_null()) return std::nullopt;
  return T(json.get<uint32_t>());
}

Json ScoringJson(const ScoringChoice& scoring) {
  return {{"when", Number(scoring.when)},
          {"prior_tokens", Number(scoring.prior_tokens)},
          {"group", Number(scoring.group)},
          {"per_voter", scoring.per_voter},
          {"value_weighted", scoring.value_weighted}};
}

ScoringChoice ReadScoringJson(const Json& json) {
  return {.when = ReadNumber<ScoreWhen>(json.at("when")),
          .prior_tokens = ReadNumber<uint32_t>(json.at("prior_tokens")),
          .group = ReadNumber<GroupMass>(json.at("group")),
          .per_voter = json.at("per_voter"),
          .value_weighted = json.at("value_weighted")};
}

}  // namespace

Json CacheJson(const CacheConfig& cache) {
  return {{"policy", CachePolicyName(cache.policy)},
          {"share", cache.budget ? cache.budget->share : 0.0},
          {"bytes", cache.budget ? cache.budget->bytes : 0},
          {"kv_type", KvTypeName(cache.kv_type)},
          {"omega", cache.geometry.omega},
          {"sinks", cache.geometry.sinks},
          {"local", cache.geometry.local},
          {"key_bits", Number(cache.key_bits)},
          {"value_bits", Number(cache.value_bits)},
          {"full_share", cache.full_share},
          {"stream", cache.prefill == PrefillMode::kStream},
          {"pin", cache.promotion == Promotion::kPin},
          {"scoring", ScoringJson(cache.scoring_choice)},
          {"tables", cache.tables_folder}};
}

Result<CacheConfig> ReadCacheJson(const Json& json) {
  CacheConfig cache;
  QEVICT_ASSIGN_OR_RETURN(cache.policy, ParseCachePolicy(json.at("policy").get<std::string>()));
  const KvBudget budget{.share = json.at("share"), .bytes = json.at("bytes")};
  if (budget.share > 0.0 || budget.bytes > 0) cache.budget = budget;
  QEVICT_ASSIGN_OR_RETURN(cache.kv_type, ParseKvType(json.at("kv_type").get<std::string>()));
  cache.geometry = {
      .omega = json.at("omega"), .sinks = json.at("sinks"), .local = json.at("local")};
  cache.key_bits = ReadNumber<uint32_t>(json.at("key_bits"));
  cache.value_bits = ReadNumber<uint32_t>(json.at("value_bits"));
  cache.full_share = json.at("full_share");
  cache.prefill = json.at("stream") ? PrefillMode::kStream : PrefillMode::kExact;
  cache.promotion = json.at("pin") ? Promotion::kPin : Promotion::kExpand;
  cache.scoring_choice = ReadScoringJson(json.at("scoring"));
  cache.tables_folder = json.at("tables");
  return cache;
}

}  // namespace qevict::bench
