#include "tools/qevict/cache_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

namespace qevict::cli {
namespace {

constexpr char kGroup[] = "Cache";

// Adds an option whose text `parse` turns into the value of `target`, or into an error that names
// the option and the text.
template <typename T, typename Parse>
CLI::Option* AddParsed(CLI::App& command, const std::string& name, const std::string& description,
                       T& target, Parse parse) {
  return command
      .add_option_function<std::string>(
          name,
          [&target, parse](const std::string& text) {
            auto value = parse(text);
            if (!value) throw CLI::ValidationError(value.error().message);
            target = std::move(*value);
          },
          description)
      ->group(kGroup);
}

template <typename T>
using Choices = std::vector<std::pair<const char*, T>>;

// The same for a text that is one of a few names.
template <typename T, typename Target>
CLI::Option* AddChoice(CLI::App& command, const std::string& name, const std::string& description,
                       Target& target, const Choices<T>& choices) {
  std::string type;
  for (const auto& choice : choices) type += fmt::format(",{}", choice.first);
  const auto parse = [name, choices](const std::string& text) -> Result<T> {
    for (const auto& [choice, value] : choices) {
      if (text == choice) return value;
    }
    std::string names = choices.front().first;
    for (size_t i = 1; i + 1 < choices.size(); ++i) names += fmt::format(", {}", choices[i].first);
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{} '{}' is neither {} nor {}", name, text,
                                                         names, choices.back().first));
  };
  return AddParsed(command, name, description, target, parse)
      ->type_name(fmt::format("{{{}}}", type.substr(1)));
}

void AddScoringFlags(CLI::App& command, ScoringChoice& choice) {
  AddChoice<ScoreWhen>(
      command, "--scoring",
      "When answers' tokens vote on windows: step (all) or event (where windows are reviewed)",
      choice.when, {{"step", ScoreWhen::kStep}, {"event", ScoreWhen::kEvent}});
  AddParsed(command, "--score-prior",
            "How many of a prompt's last tokens vote, or all (default: 32; all for qevict)",
            choice.prior_tokens, ParsePriorTokens)
      ->type_name("N");
  AddChoice<GroupMass>(command, "--score-group", "A vote of a GQA group: mean or max of its heads",
                       choice.group, {{"mean", GroupMass::kMean}, {"max", GroupMass::kMax}});
  command
      .add_flag("--score-age", choice.per_voter, "Divide scores by the votes a window could get")
      ->group(kGroup);
  command.add_flag("--score-values", choice.value_weighted, "Weight scores by the size of values")
      ->group(kGroup);
}

}  // namespace

void AddCacheFlags(CLI::App& command, CacheConfig& cache) {
  AddParsed(command, "--kv-budget",
            "Most that the cache may take: a share of what f16 would take (20%), or bytes (512MiB)",
            cache.budget, ParseKvBudget)
      ->type_name("BUDGET");
  AddParsed(command, "--policy", "What happens to tokens that do not fit (default: auto)",
            cache.policy, ParseCachePolicy)
      ->type_name("{auto,qevict,evict,quant,full}");
  AddParsed(command, "--kv-type",
            "Keys and values that are not coded: f16 (default), or q8, int8 at 8.5 bits, as "
            "llama.cpp's --cache-type-k and -v q8_0",
            cache.kv_type, ParseKvType)
      ->type_name("{f16,q8}");
  const auto number = [&](const std::string& name, auto& value, const std::string& description) {
    return command.add_option(name, value, description)
        ->type_name("N")
        ->capture_default_str()
        ->group(kGroup);
  };
  number("--window", cache.geometry.omega, "Tokens of a window, which is moved as a whole");
  number("--sinks", cache.geometry.sinks, "First tokens, which are never coded");
  number("--local", cache.geometry.local, "Newest tokens, which are never coded");
  const auto bits = [&](const std::string& name, auto& value, const std::string& description) {
    command.add_option(name, value, description)->type_name("N")->group(kGroup);
  };
  bits("--kbits", cache.key_bits,
       "Bits of a coded key's channel: 2, 3 or 4 (default: 3; auto takes 4 where they fit)");
  bits("--vbits", cache.value_bits,
       "Bits of a coded value's channel: 1, 2 or 4 (default: 2; auto takes 4 where they fit)");
  AddChoice<PrefillMode>(
      command, "--prefill",
      "A long prompt: exact (as a full cache would, layer by layer) or stream (in pieces)",
      cache.prefill, {{"exact", PrefillMode::kExact}, {"stream", PrefillMode::kStream}});
  AddChoice<Promotion>(
      command, "--promotion",
      "A code that gathers attention: expand (a full window again) or pin (keep the code)",
      cache.promotion, {{"expand", Promotion::kExpand}, {"pin", Promotion::kPin}});
  AddScoringFlags(command, cache.scoring_choice);
}

void AddAttentionFlag(CLI::App& command, AttentionKind& attention) {
  AddChoice<AttentionKind>(
      command, "--attention",
      "fused (default), or reference: decoded, in f32, by the definition; slow, to check with",
      attention, {{"fused", AttentionKind::kFused}, {"reference", AttentionKind::kReference}});
}

void AddProductsFlag(CLI::App& command, Products& products) {
  AddChoice<Products>(
      command, "--products",
      "Who multiplies: auto (our own kernel for weights in blocks, else oneDNN in long prompts, "
      "else ggml), ggml, or f32 (nothing rounded, 4 bytes per weight, slow; to measure with)",
      products,
      {{"auto", Products::kFastest}, {"ggml", Products::kGgml}, {"f32", Products::kFloat32}})
      ->group("Engine");
}

}  // namespace qevict::cli
