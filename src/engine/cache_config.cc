#include "engine/cache_config.h"

#include <array>
#include <charconv>
#include <cmath>

namespace qevict {
namespace {

constexpr std::array<std::string_view, 5> kPolicyNames = {"full", "quant", "evict", "qevict",
                                                          "auto"};

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr Unit kUnits[] = {{"", 1},         {"B", 1},      {"kB", 1e3},     {"KB", 1e3},
                           {"MB", 1e6},     {"GB", 1e9},   {"KiB", 0x1p10}, {"K", 0x1p10},
                           {"MiB", 0x1p20}, {"M", 0x1p20}, {"GiB", 0x1p30}, {"G", 0x1p30}};

}  // namespace

std::string_view CachePolicyName(CachePolicy policy) { return kPolicyNames[size_t(policy)]; }

Result<CachePolicy> ParseCachePolicy(std::string_view name) {
  for (size_t i = 0; i < kPolicyNames.size(); ++i) {
    if (kPolicyNames[i] == name) return CachePolicy(i);
  }
  return Fail(ErrorCode::kInvalidArgument,
              "--policy '" + std::string(name) + "' is none of full, quant, evict, qevict, auto");
}

Result<KvType> ParseKvType(std::string_view name) {
  for (const KvType type : {KvType::kF16, KvType::kQ8}) {
    if (KvTypeName(type) == name) return type;
  }
  return Fail(ErrorCode::kInvalidArgument,
              "--kv-type '" + std::string(name) + "' is neither f16 nor q8");
}

Result<KvBudget> ParseKvBudget(std::string_view text) {
  double number = 0.0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(rest, size_t(text.data() + text.size() - rest));
  if (error == std::errc() && std::isfinite(number) && number > 0.0) {
    if (unit.empty() && number <= 100.0) {
      return Fail(ErrorCode::kInvalidArgument,
                  "--kv-budget '" + std::string(text) +
                      "' is too few bytes for any cache; did you mean " + std::string(text) + "%?");
    }
    if (unit == "%" && number <= 100.0) return KvBudget{.share = number / 100.0};
    for (const Unit& known : kUnits) {
      const double bytes = number * known.bytes;
      if (unit == known.name && bytes >= 1.0 && bytes < 0x1p62) {
        return KvBudget{.bytes = uint64_t(bytes)};
      }
    }
  }
  return Fail(ErrorCode::kInvalidArgument,
              "--kv-budget '" + std::string(text) +
                  "' is neither a share up to 100%, such as 20%, nor bytes such as 512MiB");
}

Result<uint32_t> ParsePriorTokens(std::string_view text) {
  if (text == "all") return kAllTokens;
  uint32_t tokens = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), tokens);
  if (error != std::errc() || rest != text.data() + text.size() || tokens == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "--score-prior '" + std::string(text) +
                    "' is neither all nor a number of tokens from 1 on");
  }
  return tokens;
}

std::string ScoringName(const ScoringConfig& scoring) {
  std::string name = scoring.when == ScoreWhen::kStep ? "step" : "event";
  name += scoring.prior_tokens == kAllTokens
              ? ", prior of all tokens"
              : ", prior of " + std::to_string(scoring.prior_tokens) + " tokens";
  name += scoring.group == GroupMass::kMean ? ", mean" : ", max";
  if (scoring.per_voter) name += ", by age";
  if (scoring.value_weighted) name += ", by values";
  return name;
}

ScoringConfig CacheConfig::scoring() const {
  ScoringConfig scoring;
  if (policy == CachePolicy::kQevict) scoring.prior_tokens = kAllTokens;
  scoring.when = scoring_choice.when.value_or(scoring.when);
  scoring.prior_tokens = scoring_choice.prior_tokens.value_or(scoring.prior_tokens);
  // Few queries point at few windows; the sum of all has no need to be widened.
  if (scoring.prior_tokens == kAllTokens) scoring.prior_pooling = MassPooling::kNone;
  scoring.group = scoring_choice.group.value_or(scoring.group);
  scoring.per_voter = scoring_choice.per_voter;
  scoring.value_weighted = scoring_choice.value_weighted;
  return scoring;
}

Status CacheConfig::Validate() const {
  QEVICT_RETURN_IF_ERROR(geometry.Validate());
  const auto refuse = [](std::string message) {
    return Fail(ErrorCode::kInvalidArgument, std::move(message));
  };
  const uint32_t k = least_key_bits(), v = least_value_bits();
  if (k < 2 || k > 4) return refuse("--kbits " + std::to_string(k) + " is not 2, 3 or 4");
  if (v != 1 && v != 2 && v != 4)
    return refuse("--vbits " + std::to_string(v) + " is not 1, 2 or 4");
  if (!(full_share >= 0.0f && full_share <= 1.0f)) return refuse("full_share is not in 0 .. 1");
  if (!budget && (policy == CachePolicy::kQevict || policy == CachePolicy::kEvict)) {
    return refuse("--policy " + std::string(CachePolicyName(policy)) +
                  " does nothing without --kv-budget; give one");
  }
  const char* const flag = scoring_choice.when             ? "--scoring"
                           : scoring_choice.prior_tokens   ? "--score-prior"
                           : scoring_choice.group          ? "--score-group"
                           : scoring_choice.per_voter      ? "--score-age"
                           : scoring_choice.value_weighted ? "--score-values"
                                                           : nullptr;
  if (flag != nullptr && !chooses()) {
    return refuse(std::string(flag) + " does nothing " +
                  (budget || policy == CachePolicy::kFull || policy == CachePolicy::kQuant
                       ? "with --policy " + std::string(CachePolicyName(policy)) +
                             ", which never evicts; choose auto, evict or qevict"
                       : "without --kv-budget, since nothing is evicted"));
  }
  return {};
}

}  // namespace qevict
