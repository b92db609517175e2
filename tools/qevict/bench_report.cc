#include "tools/qevict/bench_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/qevict/cache_facts.h"
#include "tools/qevict/table.h"
#include "tools/qevict/units.h"

namespace qevict::cli {
namespace {

using bench::Comparison;
using bench::Median;
using bench::Rounds;

// More than this share of a core while it is not its turn, and an engine disturbs the other.
constexpr double kQuietCpuShare = 0.02;

Json Range(const std::vector<double>& values) {
  if (values.empty()) return nullptr;
  const auto [least, most] = std::ranges::minmax(values);
  return Json::array({least, most});
}

Json RoundsJson(const Rounds& rounds) {
  const bool compared = !rounds.peer.empty();
  return {{"ours", Median(rounds.ours)},
          {"peer", compared ? Json(Median(rounds.peer)) : Json(nullptr)},
          {"ratio", compared ? Json(Median(rounds.Ratios())) : Json(nullptr)},
          {"rounds", rounds.ours.size()},
          {"spread",
           {{"ours", Range(rounds.ours)},
            {"peer", Range(rounds.peer)},
            {"ratio", Range(rounds.Ratios())}}}};
}

Json BytesJson(const std::optional<uint64_t>& bytes) {
  return bytes ? Json(*bytes) : Json(nullptr);
}

Json BytesJson(const std::optional<uint64_t>& ours, const std::optional<uint64_t>& peer) {
  return {{"ours", BytesJson(ours)}, {"peer", BytesJson(peer)}};
}

Json ShareJson(const bench::EngineReport& report) {
  return report.idle_cpu_share ? Json(*report.idle_cpu_share) : Json(nullptr);
}

std::string RangeText(const std::vector<double>& values, const char* format) {
  const auto [least, most] = std::ranges::minmax(values);
  return fmt::format("{}-{}", fmt::format(fmt::runtime(format), least),
                     fmt::format(fmt::runtime(format), most));
}

// Label, ours, peer, ratio, spread of the ratio (or of ours without a peer).
void AddRate(Table& table, const std::string& label, const Rounds& rounds) {
  const bool compared = !rounds.peer.empty();
  table.AddRow(
      {label, fmt::format("{:.1f}", Median(rounds.ours)),
       compared ? fmt::format("{:.1f}", Median(rounds.peer)) : "-",
       compared ? fmt::format("{:.2f}x", Median(rounds.Ratios())) : "-",
       compared ? RangeText(rounds.Ratios(), "{:.2f}") : RangeText(rounds.ours, "{:.1f}")});
}

void AddBytes(Table& table, const std::string& label, const std::optional<uint64_t>& ours,
              const std::optional<uint64_t>& peer) {
  const bool compared = ours && peer && *peer != 0;
  table.AddRow({label, ours ? FormatBytes(*ours) : "-", compared ? FormatBytes(*peer) : "-",
                compared ? fmt::format("{:.2f}x", double(*ours) / double(*peer)) : "-", ""});
}

}  // namespace

Json BenchJson(const BenchSetting& setting, uint32_t context, const Comparison& comparison) {
  const auto& peer = comparison.peer;
  const auto of_peer = [&](auto member) -> Json { return peer ? member(*peer) : Json(nullptr); };
  return {{"model", setting.model},
          {"context", context},
          {"decode_tokens", setting.decode_tokens},
          {"repeat", setting.repeat},
          {"threads", setting.threads},
          {"cpu", setting.cpu},
          {"commit", setting.commit},
          {"isa", setting.isa},
          {"cache", CacheFacts(setting.cache)},
          {"against", setting.peer.empty() ? Json(nullptr) : Json(setting.peer)},
          {"prefill", RoundsJson(comparison.prefill)},
          {"decode", RoundsJson(comparison.decode)},
          {"kv_bytes",
           BytesJson(comparison.ours.worker.kv_bytes, peer ? peer->worker.kv_bytes : std::nullopt)},
          {"peak_rss_bytes",
           BytesJson(comparison.ours.worker.peak_rss_bytes,
                     peer ? std::optional(peer->worker.peak_rss_bytes) : std::nullopt)},
          {"settings",
           {{"ours", comparison.ours.worker.settings},
            {"peer", of_peer([](const bench::EngineReport& report) -> Json {
               return report.worker.settings;
             })}}},
          {"idle_cpu_share", {{"ours", ShareJson(comparison.ours)}, {"peer", of_peer(ShareJson)}}},
          {"same_next_token", peer ? Json(comparison.same_next_token) : Json(nullptr)}};
}

std::string BenchText(const BenchSetting& setting, uint32_t context, const Comparison& comparison) {
  const auto& peer = comparison.peer;
  std::string text = fmt::format("context {}, {} tokens decoded, {} thread{}, {}\n",
                                 FormatTokens(context), setting.decode_tokens, setting.threads,
                                 setting.threads == 1 ? "" : "s", setting.cpu);
  Table table({{""},
               {"QEVICT", Align::kRight},
               {peer ? setting.peer : "PEER", Align::kRight},
               {"RATIO", Align::kRight},
               {"SPREAD", Align::kRight}});
  AddRate(table, "prefill tokens/s", comparison.prefill);
  AddRate(table, "decode tokens/s", comparison.decode);
  AddBytes(table, "KV bytes", comparison.ours.worker.kv_bytes,
           peer ? peer->worker.kv_bytes : std::nullopt);
  AddBytes(table, "peak memory", comparison.ours.worker.peak_rss_bytes,
           peer ? std::optional(peer->worker.peak_rss_bytes) : std::nullopt);
  text += table.Text();
  text += fmt::format("qevict: {}\n", comparison.ours.worker.settings);
  if (!peer) return text;
  text += fmt::format("{}: {}\n", setting.peer, peer->worker.settings);
  if (!comparison.same_next_token)
    text += "note: the two engines predict different tokens after the prompt\n";
  const double idle =
      std::max(comparison.ours.idle_cpu_share.value_or(0.0), peer->idle_cpu_share.value_or(0.0));
  if (idle > kQuietCpuShare) {
    text += fmt::format(
        "warning: the waiting engine used {:.0f} % of a core; is OMP_WAIT_POLICY or GOMP_SPINCOUNT "
        "set?\n",
        idle * 100.0);
  }
  return text;
}

}  // namespace qevict::cli
