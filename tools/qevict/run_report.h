// What `qevict run` says about an answer after it: lines on standard error, or one JSON object.
#pragma once

#include <string>
#include <string_view>

#include "tools/qevict/answer.h"

namespace qevict::cli {

struct RunFacts {
  std::string_view model;  // as -m named it
  uint32_t context_tokens = 0, threads = 0;
  std::string_view isa;
  std::string_view policy;
  KvUsage kv;
};

std::string RunSummary(const Answer& answer, const RunFacts& facts);  // lines with line breaks
// One line with its break; with an `error` where the trace has one.
std::string RunJson(const Answer& answer, const RunFacts& facts, const Status& trace);
std::string CacheSummary(const KvUsage& kv);  // the lines of the cache
// One line for a conversation's turn.
std::string TurnSummary(const Answer& answer, uint32_t context_tokens);

}  // namespace qevict::cli
