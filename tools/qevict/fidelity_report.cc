#include "tools/qevict/fidelity_report.h"

#include <fmt/format.h>

#include "tools/qevict/cache_facts.h"
#include "tools/qevict/table.h"
#include "tools/qevict/units.h"

namespace qevict::cli {
namespace {

Json RowsJson(const std::vector<FidelityRow>& rows, const CacheConfig& cache) {
  Json json = Json::array();
  for (const FidelityRow& row : rows) {
    const Fidelity& f = row.fidelity;
    Json one;
    if (row.codec) {
      one["codec"] = row.codec->name();
    } else {
      one["policy"] = CachePolicyName(cache.policy);
      one["kv_type"] = KvTypeName(cache.kv_type);
    }
    one.update({{"bits", f.bits},
                {"bytes", f.bytes},
                {"share", f.share},
                {"kl", f.kl},
                {"top1", f.top1},
                {"dlogppl", f.dlogppl}});
    json.push_back(std::move(one));
  }
  return json;
}

std::string RowsText(const std::string& title, const std::vector<FidelityRow>& rows,
                     const CacheConfig& cache) {
  Table table({{title},
               {"BITS", Align::kRight},
               {"CACHE", Align::kRight},
               {"OF F16", Align::kRight},
               {"KL", Align::kRight},
               {"TOP-1", Align::kRight},
               {"DLOGPPL", Align::kRight}});
  for (const FidelityRow& row : rows) {
    const Fidelity& f = row.fidelity;
    table.AddRow({row.codec ? row.codec->name() : CacheLabel(cache), fmt::format("{:.2f}", f.bits),
                  FormatBytes(f.bytes), fmt::format("{:.1f} %", f.share * 100.0),
                  fmt::format("{:.4f}", f.kl), fmt::format("{:.1f} %", f.top1 * 100.0),
                  fmt::format("{:+.4f}", f.dlogppl)});
  }
  return table.Text();
}

}  // namespace

std::string CacheLabel(const CacheConfig& cache) {
  const std::string label(CachePolicyName(cache.policy));
  return cache.kv_type == KvType::kF16 ? label : label + ", q8";
}

std::vector<FidelityRow> MeanRows(const std::vector<FidelityText>& texts) {
  std::vector<FidelityRow> means = texts.front().rows;
  const double count = double(texts.size());
  for (size_t r = 0; r < means.size(); ++r) {
    const auto mean = [&](auto member) {
      double sum = 0.0;
      for (const FidelityText& text : texts) sum += double(text.rows[r].fidelity.*member);
      return sum / count;
    };
    means[r].fidelity = {.bits = mean(&Fidelity::bits),
                         .bytes = uint64_t(mean(&Fidelity::bytes) + 0.5),
                         .share = mean(&Fidelity::share),
                         .kl = mean(&Fidelity::kl),
                         .top1 = mean(&Fidelity::top1),
                         .dlogppl = mean(&Fidelity::dlogppl)};
  }
  return means;
}

Json FidelityJson(const FidelityReport& report) {
  Json texts = Json::array();
  for (const FidelityText& text : report.texts) {
    texts.push_back({{"file", text.file}, {"rows", RowsJson(text.rows, report.cache)}});
  }
  return {{"model", report.model},
          {"context", report.context},
          {"decode_tokens", report.decode_tokens},
          {"threads", report.threads},
          {"isa", report.isa},
          {"products", ProductsName(report.products)},
          {"cache", CacheFacts(report.cache)},
          {"commit", report.commit},
          {"rows", RowsJson(MeanRows(report.texts), report.cache)},
          {"texts", std::move(texts)}};
}

std::string FidelityTables(const FidelityReport& report) {
  std::string text =
      fmt::format("{}: context {}, {} tokens behind it, against the full cache\n", report.model,
                  FormatTokens(report.context), FormatTokens(report.decode_tokens));
  for (const FidelityText& of_file : report.texts) {
    text += "\n" + RowsText(of_file.file, of_file.rows, report.cache);
  }
  if (report.texts.size() > 1) {
    text += "\n" + RowsText("mean", MeanRows(report.texts), report.cache);
  }
  return text;
}

}  // namespace qevict::cli
