#include "tools/qevict/cache_options.h"

#include <string>
#include <vector>

namespace qevict::cli {
namespace {

constexpr char kGroup[] = "Cache";

// Adds an option whose text `parse` turns into the value of `target`.
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

void AddScoringFlags(CLI::App& command, ScoringChoice& choice) {
  AddParsed(
      command, "--scoring",
      "When answers' tokens vote on windows: step (all) or event (where windows are reviewed)",
      choice.when,
      [](const std::string& text) -> Result<ScoreWhen> {
        if (text == "step") return ScoreWhen::kStep;
        if (text == "event") return ScoreWhen::kEvent;
        return Fail(ErrorCode::kInvalidArgument, "it is neither step nor event");
      })
      ->type_name("WHEN");
  AddParsed(command, "--score-prior",
            "How many of a prompt's last tokens vote, or all (default: 32; all for qevict)",
            choice.prior_tokens, ParsePriorTokens)
      ->type_name("N");
  AddParsed(command, "--score-group", "A vote of a GQA group: mean or max of its heads",
            choice.group,
            [](const std::string& text) -> Result<GroupMass> {
              if (text == "mean") return GroupMass::kMean;
              if (text == "max") return GroupMass::kMax;
              return Fail(ErrorCode::kInvalidArgument, "it is neither mean nor max");
            })
      ->type_name("HOW");
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
  AddParsed(
      command, "--policy",
      "What happens to tokens that do not fit: auto, qevict, evict, quant or full (default: auto)",
      cache.policy, ParseCachePolicy)
      ->type_name("NAME");
  const auto number = [&](const std::string& name, auto& value, const std::string& description) {
    return command.add_option(name, value, description)
        ->type_name("N")
        ->capture_default_str()
        ->group(kGroup);
  };
  number("--window", cache.geometry.omega, "Tokens of a window, which is moved as a whole");
  number("--sinks", cache.geometry.sinks, "First tokens, which stay in f16");
  number("--local", cache.geometry.local, "Newest tokens, which stay in f16");
  number("--kbits", cache.key_bits, "Bits of a coded key's channel: 2, 3 or 4");
  number("--vbits", cache.value_bits, "Bits of a coded value's channel: 1, 2 or 4");
  AddParsed(command, "--prefill",
            "A long prompt: exact (as a full cache would, layer by layer) or stream (by chunks)",
            cache.prefill,
            [](const std::string& text) -> Result<PrefillMode> {
              if (text == "exact") return PrefillMode::kExact;
              if (text == "stream") return PrefillMode::kStream;
              return Fail(ErrorCode::kInvalidArgument, "it is neither exact nor stream");
            })
      ->type_name("MODE");
  AddParsed(command, "--promotion",
            "A code that gathers attention: expand (to f16 again) or pin (keep the code)",
            cache.promotion,
            [](const std::string& text) -> Result<Promotion> {
              if (text == "expand") return Promotion::kExpand;
              if (text == "pin") return Promotion::kPin;
              return Fail(ErrorCode::kInvalidArgument, "it is neither expand nor pin");
            })
      ->type_name("MODE");
  AddScoringFlags(command, cache.scoring_choice);
}

void AddAttentionFlag(CLI::App& command, AttentionKind& attention) {
  AddParsed(
      command, "--attention",
      "fused (default), or reference: decoded, in f32, by the definition; slow, to check with",
      attention,
      [](const std::string& text) -> Result<AttentionKind> {
        if (text == "fused") return AttentionKind::kFused;
        if (text == "reference") return AttentionKind::kReference;
        return Fail(ErrorCode::kInvalidArgument, "--attention is neither fused nor reference");
      })
      ->type_name("KIND");
}

}  // namespace qevict::cli
