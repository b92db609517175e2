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

std::string TierSummary(const KvUsage& kv) {
  const TierStats& tiers = kv.tiers;
  const std::string bits =
      kv.code_bits == 0.0 ? "" : fmt::format(" ({:.2f} bits per element)", kv.code_bits);
  return fmt::format(
      "tiers   {:>15}  {}, {} codes{}, {} ledger; history of {} full, {} quantized, {} evicted "
      "windows\n"
      "staging {:>15}  at most, of a prompt on its way into the tiers, beside the limit\n"
      "routing {:>15}  {} demotions, {} promotions, {} evictions, {} windows coded\n",
      FormatBytes(kv.full_bytes), KvTypeName(kv.kv_type), FormatBytes(kv.quantized_bytes), bits,
      FormatBytes(kv.ledger_bytes), FormatTokens(tiers.full_windows),
      FormatTokens(tiers.quantized_windows), FormatTokens(tiers.evicted_windows),
      FormatBytes(kv.staging_peak_bytes), fmt::format("{:.0f} ms", tiers.routing_seconds * 1e3),
      FormatTokens(tiers.demotions), FormatTokens(tiers.promotions), FormatTokens(tiers.evictions),
      FormatTokens(tiers.encoded));
}

Json TiersJson(const KvUsage& kv) {
  const TierStats& tiers = kv.tiers;
  return {{"full_bytes", kv.full_bytes},
          {"quantized_bytes", kv.quantized_bytes},
          {"ledger_bytes", kv.ledger_bytes},
          {"code_bits", kv.code_bits},
          {"staging_peak_bytes", kv.staging_peak_bytes},
          {"full_windows", tiers.full_windows},
          {"quantized_windows", tiers.quantized_windows},
          {"evicted_windows", tiers.evicted_windows},
          {"demotions", tiers.demotions},
          {"promotions", tiers.promotions},
          {"evictions", tiers.evictions},
          {"encoded", tiers.encoded},
          {"routing_ms", tiers.routing_seconds * 1e3}};
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
  return text + CacheSummary(facts.kv);
}

std::string CacheSummary(const KvUsage& kv) {
  const bool tiers = kv.quantized_bytes != 0 || kv.ledger_bytes != 0;
  const bool all_q8 = !tiers && kv.kv_type == KvType::kQ8;
  std::string text =
      fmt::format("cache   {:>15}  now{}; peak {}, limit {}; every token in f16: {}\n",
                  FormatBytes(kv.used_bytes), all_q8 ? ", in q8" : "", FormatBytes(kv.peak_bytes),
                  FormatBytes(kv.limit_bytes), FormatBytes(kv.full_f16_bytes));
  if (tiers) text += TierSummary(kv);
  return text;
}

std::string RunJson(const Answer& answer, const RunFacts& facts, const Status& trace) {
  const KvUsage& kv = facts.kv;
  Json json = {{"text", answer.outcome.text},
               {"stop_reason", StopReasonName(answer.outcome.reason)},
               {"prompt_tokens", answer.prompt_tokens},
               {"generated_tokens", answer.outcome.tokens.size()},
               {"prefill_tps", answer.prefill_tps()},
               {"decode_tps", answer.decode_tps()},
               {"kv",
                {{"limit_bytes", kv.limit_bytes},
                 {"used_bytes", kv.used_bytes},
                 {"peak_bytes", kv.peak_bytes},
                 {"full_f16_bytes", kv.full_f16_bytes},
                 {"tiers", TiersJson(kv)}}},
               {"policy", facts.policy},
               {"kv_type", KvTypeName(kv.kv_type)},
               {"context_tokens", facts.context_tokens},
               {"model", facts.model},
               {"threads", facts.threads},
               {"isa", facts.isa}};
  if (!trace.ok()) json["error"] = ErrorJson(trace.error());
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
