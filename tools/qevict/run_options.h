// The flags of `qevict run`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/cache_config.h"
#include "engine/engine.h"
#include "engine/generator.h"
#include "model/sampler.h"
#include "qevict/status.h"
#include "tools/qevict/cli_fwd.h"

namespace qevict::cli {

struct RunOptions {
  std::string model;
  std::optional<std::string> prompt, system;
  std::vector<std::string> files;  // "-": standard input
  bool raw = false, interactive = false, quiet = false;
  uint32_t ctx = 0;      // 0: as much as the prompt and the answer need
  uint32_t threads = 0;  // 0: one per physical core
  uint32_t chunk = 512;
  CacheConfig cache;
  Products products = Products::kFastest;
  AttentionKind attention = AttentionKind::kFused;
  std::optional<std::string> trace;
  std::optional<std::string> grammar_file, json_schema;
  SamplingConfig sampling;  // LoadGrammar() fills in the grammar
  GenerateConfig generate;
};

void AddRunFlags(CLI::App& command, RunOptions& options);

// Flags that exclude each other or are empty, and sampling options out of range. Error
// kInvalidArgument.
Status CheckRunOptions(const RunOptions& options);
// Reads --grammar-file and --json-schema @FILE. Errors: kNotFound, kIo, kInvalidArgument.
Status LoadGrammar(RunOptions& options);

}  // namespace qevict::cli
