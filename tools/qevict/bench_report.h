// A comparison as a table for people and as JSON for machines (schema: docs/command-line.md).
#pragma once

#include <string>

#include "bench/e2e/comparison.h"
#include "tools/qevict/json_output.h"

namespace qevict::cli {

struct BenchSetting {  // what all comparisons of one run share
  std::string model, peer, cpu, commit, isa;
  CacheConfig cache;  // ours
  uint32_t threads = 0, decode_tokens = 0, repeat = 0;
};

Json BenchJson(const BenchSetting& setting, uint32_t context, const bench::Comparison& comparison);
std::string BenchText(const BenchSetting& setting, uint32_t context,
                      const bench::Comparison& comparison);

}  // namespace qevict::cli
