#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "bench/e2e/comparison.h"
#include "bench/e2e/peer_program.h"
#include "core/cpu_count.h"
#include "core/isa.h"
#include "engine/model_catalog.h"
#include "model/hyperparameters.h"
#include "model/tokenizer.h"
#include "tools/qevict/bench_report.h"
#include "tools/qevict/between.h"
#include "tools/qevict/cache_options.h"
#include "tools/qevict/command.h"
#include "tools/qevict/commit.h"
#include "tools/qevict/interrupt.h"
#include "tools/qevict/print.h"
#include "tools/qevict/progress_line.h"
#include "tools/qevict/text_source.h"

namespace qevict::cli {
namespace {

constexpr char kWorkerCommand[] = "bench-worker";

struct BenchOptions {
  std::string model, against, file;
  std::vector<uint32_t> contexts = {2048};
  uint32_t decode_tokens = 64, threads = 0, repeat = 5, chunk = 0, peer_chunk = 0;
  CacheConfig cache;
};

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

// The same for every run: speed does not depend on the text, as long as no engine can guess it.
std::vector<Token> BuiltInTokens(uint32_t vocab, uint32_t count) {
  // Control tokens come first in most vocabularies.
  const uint32_t special = vocab > 4096 ? 1024 : 0;
  const uint32_t range = std::min(vocab - special, 32768u);
  std::vector<Token> tokens(count);
  uint32_t state = 1;
  for (Token& token : tokens) {
    state = state * 1664525u + 1013904223u;  // Numerical Recipes' generator
    token = Token(special + (state >> 8) % range);
  }
  return tokens;
}

Result<std::vector<Token>> FileTokens(const std::string& text_path, const GgufFile& model) {
  QEVICT_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(text_path));
  QEVICT_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(model));
  return tokenizer->Encode(text, SpecialText::kPlain, Bos::kModelDefault);
}

struct BenchRun {
  BenchSetting setting;
  bench::ComparisonConfig config;  // all but the context and its tokens
  uint32_t vocab = 0, context_train = 0;
  std::optional<std::vector<Token>> text;  // of -f
};

Result<BenchRun> Prepare(const BenchOptions& options) {
  BenchRun run;
  QEVICT_ASSIGN_OR_RETURN(const std::string path, ResolveModel(options.model));
  QEVICT_ASSIGN_OR_RETURN(const auto file, GgufFile::Open(path));
  QEVICT_ASSIGN_OR_RETURN(const Hyperparameters shape, ReadHyperparameters(*file));
  QEVICT_ASSIGN_OR_RETURN(const Isa isa, SelectIsa());
  run.vocab = shape.vocab;
  run.context_train = shape.context_train;
  const uint32_t threads = options.threads == 0 ? UsableCores() : options.threads;
  run.setting = {.model = std::filesystem::path(path).filename().string(),
                 .peer = options.against,
                 .cpu = CpuName(),
                 .commit = std::string(BuildCommit()),
                 .isa = std::string(IsaName(isa)),
                 .cache = options.cache,
                 .threads = threads,
                 .decode_tokens = options.decode_tokens,
                 .repeat = options.repeat};
  run.config.worker_command = {"/proc/self/exe", kWorkerCommand};
  QEVICT_ASSIGN_OR_RETURN(run.config.peer_command,
                          bench::PeerCommand(options.against, run.config.worker_command));
  run.config.model_path = path;
  run.config.peer = options.against;
  run.config.decode_tokens = options.decode_tokens;
  run.config.repeat = options.repeat;
  run.config.threads = threads;
  run.config.chunk_tokens = options.chunk;
  run.config.peer_chunk_tokens = options.peer_chunk;
  QEVICT_RETURN_IF_ERROR(options.cache.Validate());
  run.config.cache = options.cache;
  run.config.cache.tables_folder = TablesFolder();
  // A sliding-window layer has forgotten what going back would need, and so has routing.
  run.config.decode_end = shape.swa_window == 0 && !options.cache.tiered()
                              ? bench::DecodeEnd::kRewind
                              : bench::DecodeEnd::kStay;
  if (!options.file.empty()) {
    QEVICT_ASSIGN_OR_RETURN(run.text, FileTokens(options.file, *file));
  }
  return run;
}

Status SetContext(BenchRun& run, uint32_t context) {
  run.config.context = context;
  const uint64_t needed = run.config.CapacityTokens();
  if (needed > run.context_train) {
    return Fail(
        ErrorCode::kContextFull,
        fmt::format("--context {} needs {} tokens with what is decoded behind it, and the model "
                    "has room for {}; use at most --context {}",
                    context, needed, run.context_train,
                    run.context_train - std::min<uint64_t>(run.context_train, needed - context)));
  }
  if (!run.text) {
    run.config.tokens = BuiltInTokens(run.vocab, uint32_t(needed));
    return {};
  }
  if (run.text->size() < needed) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the text of -f has {} tokens, and --context {} needs {}; give a longer text",
                    run.text->size(), context, needed));
  }
  run.config.tokens.assign(run.text->begin(), run.text->begin() + ptrdiff_t(needed));
  return {};
}

Result<ExitStatus> Bench(const BenchOptions& options, OutputFormat format) {
  CatchInterrupts();
  QEVICT_ASSIGN_OR_RETURN(BenchRun run, Prepare(options));
  for (const uint32_t context : options.contexts) QEVICT_RETURN_IF_ERROR(SetContext(run, context));

  ProgressLine line(ProgressLine::StyleOfStderr());
  Json results = Json::array();
  for (const uint32_t context : options.contexts) {
    QEVICT_RETURN_IF_ERROR(SetContext(run, context));
    const auto on_turn = [&](uint32_t turn, uint32_t turns, const std::string& what) {
      line.Update(fmt::format("context {}", context), double(turn - 1) / double(turns), what);
    };
    const auto comparison = bench::RunComparison(run.config, on_turn, Interrupted);
    line.Finish();
    if (!comparison) return tl::unexpected(comparison.error());
    if (format == OutputFormat::kJson) {
      results.push_back(BenchJson(run.setting, context, *comparison));
    } else {
      Print(stdout, "{}\n", BenchText(run.setting, context, *comparison));
      std::fflush(stdout);  // contexts take minutes: each is shown when it is there
    }
  }
  if (format == OutputFormat::kJson)
    PrintJson(results.size() == 1 ? results.front() : Json{{"results", results}});
  return ExitStatus::kOk;
}

void AddFlags(CLI::App& command, BenchOptions& options) {
  const std::vector<std::string> peers(std::begin(bench::kPeers), std::end(bench::kPeers));
  command.add_option("-m,--model", options.model, "A GGUF file, or a name from `qevict models`")
      ->required()
      ->type_name("MODEL");
  command
      .add_option("-c,--context", options.contexts,
                  "Tokens in front of the decoded ones; several with commas")
      ->delimiter(',')
      ->check(Between(0, 1u << 20))
      ->type_name("N,...")
      ->capture_default_str();
  command.add_option("--against", options.against, "Compare with another engine on the same file")
      ->check(CLI::IsMember(peers));
  command.add_option("-n,--decode", options.decode_tokens, "Tokens per decode block")
      ->check(Between(1, 65536))
      ->type_name("N")
      ->capture_default_str();
  command
      .add_option("-t,--threads", options.threads,
                  "Threads of each engine; 0: one per physical core")
      ->check(Between(0, kMostThreads))
      ->type_name("N")
      ->capture_default_str();
  command.add_option("--repeat", options.repeat, "Rounds; a prompt above 8192 tokens is read once")
      ->check(Between(1, 1000))
      ->type_name("N")
      ->capture_default_str();
  command.add_option("-f,--file", options.file, "Text to run instead of a fixed token sequence")
      ->type_name("FILE");
  command
      .add_option("--chunk", options.chunk, "Tokens per prefill step; 0: the engine's own choice")
      ->check(Between(0, 4096))
      ->type_name("N")
      ->capture_default_str();
  command
      .add_option(
          "--peer-chunk", options.peer_chunk,
          "The same for the other engine (llama.cpp: n_ubatch; openvino: max_num_batched_tokens)")
      ->check(Between(0, 16384))
      ->type_name("N")
      ->capture_default_str();
  AddCacheFlags(command, options.cache);
}

}  // namespace

void AddBenchCommand(CommandLine& line) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command =
      line.Add({"bench", "Measure speed and memory, alone or against another engine",
                "  qevict bench -m smollm2 --context 0,2048\n"
                "  qevict bench --against llama.cpp -m qwen2.5-coder-0.5b --context 16384 --json\n"
                "  qevict bench --against full -m smollm2 --context 8000 --kv-budget 20%"},
               [options](OutputFormat format) { return Bench(*options, format); });
  AddFlags(*command, *options);

  CLI::App* worker = line.Add({kWorkerCommand, "A process of `qevict bench`", ""},
                              [](OutputFormat) -> Result<ExitStatus> {
                                QEVICT_RETURN_IF_ERROR(bench::RunWorker(bench::LoadBenchEngine));
                                return ExitStatus::kOk;
                              });
  worker->group("");  // hidden
}

}  // namespace qevict::cli
