// What compressed caches do to predictions, as tables for people and as JSON for machines (schema:
// docs/command-line.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "eval/fidelity.h"
#include "tools/qevict/json_output.h"

namespace qevict::cli {

struct FidelityRow {
  std::optional<CodecChoice> codec;  // none: the engine's cache
  Fidelity fidelity;
};
struct FidelityText {
  std::string file;
  std::vector<FidelityRow> rows;
};
struct FidelityReport {
  std::string model, isa, commit;
  CacheConfig cache;  // of the rows without a codec
  Products products = Products::kFastest;
  uint32_t context = 0, decode_tokens = 0, threads = 0;
  std::vector<FidelityText> texts;  // at least one, all with the same rows
};

// "auto", or "auto, q8".
std::string CacheLabel(const CacheConfig& cache);

// Every number's mean over the texts.
std::vector<FidelityRow> MeanRows(const std::vector<FidelityText>& texts);

Json FidelityJson(const FidelityReport& report);
std::string FidelityTables(const FidelityReport& report);

}  // namespace qevict::cli
