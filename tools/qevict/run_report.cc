#include "tools/qevict/run_report.h"

#include <fmt/format.h>

#include "tools/qevict/json_output.h"
#include "tools/qevict/table.h"
#include "tools/qevict/units.h"

namespace qevict::cli {
namespace {

std::string Speed(double tokens_per_second) {
  return tokens_per_second > 0.0 ? fmt::format("{:.1f} tokens/s", tokens_per_second) : "";
}

std::string_view Ending(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfText:
      return "the model ended it";
    case StopReason::kMaxTokens:
      return "cut at -n";
    case StopReason::kStopString:
      return "ended at --stop";
    case StopReason::kContextFull:
      return "cut where the context is full; raise --ctx";
    case StopReason::kCancelled:
      return "interrupted";
  }
  return "";
}

}  // namespace

std::string RunSummary(const Answer& answer, const RunFacts& facts) {
  const auto tokens = [](uint64_t count) { return FormatTokens(count) + " tokens"; };
  const bool whole_prompt = answer.prefilled_tokens == answer.prompt_tokens;
  std::string text = fmt::format(
      "prompt  {:>15}  {}{}\n", tokens(answer.prompt_tokens), Speed(answer.prefill_tps()),
      whole_prompt ? ""
                   : fmt::format("; interrupted after {}", FormatTokens(answer.prefilled_tokens)));
  if (whole_prompt) {
    const std::string speed = Speed(answer.decode_tps());
    text += fmt::format("answer  {:>15}  {}{}{}\n", tokens(answer.outcome.tokens.size()), speed,
                        speed.empty() ? "" : "; ", Ending(answer.outcome.reason));
  }
  const KvUsage& kv = facts.kv;
  text += fmt::format("cache   {:>15}  now; peak {}, limit {}; every token in f16: {}\n",
                      FormatBytes(kv.used_bytes), FormatBytes(kv.peak_bytes),
                      FormatBytes(kv.limit_bytes), FormatBytes(kv.full_f16_bytes));
  return text;
}

std::string RunJson(const Answer& answer, const RunFacts& facts) {
  const KvUsage& kv = facts.kv;
  const Json json = {{"text", answer.outcome.text},
                     {"stop_reason", StopReasonName(answer.outcome.reason)},
                     {"prompt_tokens", answer.prompt_tokens},
                     {"generated_tokens", answer.outcome.tokens.size()},
                     {"prefill_tps", answer.prefill_tps()},
                     {"decode_tps", answer.decode_tps()},
                     {"kv",
                      {{"limit_bytes", kv.limit_bytes},
                       {"used_bytes", kv.used_bytes},
                       {"peak_bytes", kv.peak_bytes},
                       {"full_f16_bytes", kv.full_f16_bytes}}},
                     {"context_tokens", facts.context_tokens},
                     {"model", facts.model},
                     {"threads", facts.threads},
                     {"isa", facts.isa}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string TurnSummary(const Answer& answer, uint32_t context_tokens) {
  const size_t used = answer.prompt_tokens + answer.outcome.tokens.size();
  const std::string speed = Speed(answer.decode_tps());
  return fmt::format("[{} tokens{}{}; context {} of {}]\n",
                     FormatTokens(answer.outcome.tokens.size()), speed.empty() ? "" : ", ", speed,
                     FormatTokens(used), FormatTokens(context_tokens));
}

}  // namespace qevict::cli
