#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "core/cpu_count.h"
#include "engine/model_catalog.h"
#include "eval/fidelity.h"
#include "tools/qevict/between.h"
#include "tools/qevict/cache_options.h"
#include "tools/qevict/command.h"
#include "tools/qevict/commit.h"
#include "tools/qevict/fidelity_report.h"
#include "tools/qevict/interrupt.h"
#include "tools/qevict/print.h"
#include "tools/qevict/progress_line.h"
#include "tools/qevict/routing_trace.h"
#include "tools/qevict/text_source.h"
#include "tools/qevict/units.h"

namespace qevict::cli {
namespace {

constexpr char kFidelityExamples[] =
    "  qevict fidelity -m smollm2 -f book.txt\n"
    "  qevict fidelity -m qwen2.5-coder-0.5b -f book.txt -f wiki.txt --codec k3v2,minmax2 --json\n"
    "  qevict fidelity -m smollm2 -f book.txt --policy auto --kv-budget 20%\n"
    "  qevict fidelity -m smollm2 -f book.txt --policy full --kv-type q8";

constexpr char kAllCodecs[] = "all";
// What our default stands between, and the layout that it is compared with.
constexpr const char* kDefaultCodecs[] = {"k2v2", "k3v2", "k4v2", "k4v4", "minmax2"};

struct FidelityOptions {
  std::string model;
  std::vector<std::string> files, codecs;
  FidelityConfig lengths;
  uint32_t threads = 0, chunk = 512;
  CacheConfig cache;
  bool cache_asked = false;  // --policy, --kv-budget or --kv-type was given
  AttentionKind attention = AttentionKind::kFused;
  Products products = Products::kFastest;
  std::optional<std::string> trace;
};

Result<std::vector<CodecChoice>> ChooseCodecs(const FidelityOptions& options) {
  std::vector<std::string> names = options.codecs;
  if (names.empty() && !options.cache_asked) {
    names.assign(std::begin(kDefaultCodecs), std::end(kDefaultCodecs));
  }
  std::vector<CodecChoice> choices;
  for (const std::string& name : names) {
    if (name == kAllCodecs) {
      choices.insert(choices.end(), AllCodecs().begin(), AllCodecs().end());
      continue;
    }
    QEVICT_ASSIGN_OR_RETURN(const CodecChoice choice, ParseCodec(name));
    choices.push_back(choice);
  }
  return choices;
}

Status CheckCache(const FidelityOptions& options) {
  QEVICT_RETURN_IF_ERROR(options.cache.Validate());
  const Geometry& g = options.cache.geometry;
  if (!options.cache_asked && g.history_windows(options.lengths.context_tokens) == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--context {} leaves a codec nothing to code between {} sinks and the "
                            "newest {} tokens; raise it, or lower --sinks, --local or --window",
                            options.lengths.context_tokens, g.sinks, g.local));
  }
  if (options.trace && !options.cache_asked) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "--trace has nothing to write: codecs route nothing; give --policy and --kv-budget");
  }
  const bool f16 = options.cache.kv_type == KvType::kF16;
  if (options.cache_asked && f16 && !options.cache.tiered()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--policy {} keeps every token in f16, which is what others are "
                            "compared with; {}",
                            CachePolicyName(options.cache.policy),
                            options.cache.policy == CachePolicy::kFull ? "name another policy"
                                                                       : "give --kv-budget"));
  }
  return {};
}

class FidelityProgress {
 public:
  Result<std::unique_ptr<Engine>> Load(const EngineConfig& config) {
    auto engine = Engine::Load(config, Show("fitting the codec to the model, once"), Interrupted);
    line_.Finish();
    return engine;
  }
  FidelityHooks Hooks(const std::string& label) { return {Show(label), Interrupted}; }
  void Finish() { line_.Finish(); }

 private:
  ProgressFn Show(const std::string& label) {
    return [this, label](uint32_t done, uint32_t total) {
      line_.Update(label, double(done) / double(total),
                   fmt::format("{} / {} tokens", FormatTokens(done), FormatTokens(total)));
    };
  }
  ProgressLine line_{ProgressLine::StyleOfStderr()};
};

struct Work {
  Engine* engine;
  const FidelityOptions* options;
  std::span<const CodecChoice> codecs;
  FidelityProgress* progress;
};

Result<FidelityText> MeasureText(const Work& work, const std::string& file,
                                 std::span<const Token> tokens) {
  FidelityText text{.file = file, .rows = {}};
  const auto label = [&](std::string_view what) {
    return work.options->files.size() == 1 ? std::string(what) : fmt::format("{}: {}", file, what);
  };
  QEVICT_ASSIGN_OR_RETURN(FidelityRun run,
                          FidelityRun::Start(*work.engine, work.options->lengths, tokens,
                                             work.progress->Hooks(label("full cache"))));
  for (const CodecChoice& codec : work.codecs) {
    QEVICT_ASSIGN_OR_RETURN(const Fidelity fidelity,
                            run.MeasureCodec(codec, work.progress->Hooks(label(codec.name()))));
    text.rows.push_back({codec, fidelity});
  }
  if (work.options->cache_asked) {
    QEVICT_ASSIGN_OR_RETURN(
        const Fidelity fidelity,
        run.MeasureCache(work.progress->Hooks(label(CacheLabel(work.options->cache)))));
    text.rows.push_back({std::nullopt, fidelity});
  }
  work.progress->Finish();
  return text;
}

Result<ExitStatus> MeasureFidelity(FidelityOptions options, OutputFormat format) {
  QEVICT_RETURN_IF_ERROR(CheckCache(options));
  options.lengths.geometry = options.cache.geometry;
  QEVICT_ASSIGN_OR_RETURN(const std::vector<CodecChoice> codecs, ChooseCodecs(options));
  QEVICT_ASSIGN_OR_RETURN(const std::string path, ResolveModel(options.model));
  std::vector<std::string> contents;
  for (const std::string& file : options.files) {
    QEVICT_ASSIGN_OR_RETURN(contents.emplace_back(), ReadTextFile(file));
  }
  CatchInterrupts();
  EngineConfig config{.model_path = path,
                      .threads = options.threads,
                      .prefill_chunk = options.chunk,
                      .cache = options.cache,
                      .attention = options.attention,
                      .products = options.products};
  config.cache.tables_folder = TablesFolder();
  config.fit_codec = !codecs.empty();
  std::vector<std::string> inputs = options.files;
  inputs.push_back(path);
  QEVICT_ASSIGN_OR_RETURN(
      const std::unique_ptr<RoutingTrace> trace,
      RoutingTrace::Open(options.trace, {options.model, options.cache, options.attention}, inputs));
  config.routing_observer = trace.get();
  FidelityProgress progress;
  QEVICT_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, progress.Load(config));
  FidelityReport report{.model = std::filesystem::path(path).filename().string(),
                        .isa = std::string(engine->isa_name()),
                        .commit = std::string(BuildCommit()),
                        .cache = options.cache,
                        .products = options.products,
                        .context = options.lengths.context_tokens,
                        .decode_tokens = options.lengths.decode_tokens,
                        .threads = engine->threads(),
                        .texts = {}};
  for (size_t i = 0; i < options.files.size(); ++i) {
    const auto tokens =
        engine->tokenizer().Encode(contents[i], SpecialText::kPlain, Bos::kModelDefault);
    if (!tokens) return tl::unexpected(tokens.error());
    QEVICT_ASSIGN_OR_RETURN(
        report.texts.emplace_back(),
        MeasureText({engine.get(), &options, codecs, &progress}, options.files[i], *tokens));
  }
  if (trace) QEVICT_RETURN_IF_ERROR(trace->Finish());
  if (format == OutputFormat::kJson) {
    PrintJson(FidelityJson(report));
  } else {
    Print(stdout, "{}", FidelityTables(report));
  }
  return ExitStatus::kOk;
}

void AddFlags(CLI::App& command, FidelityOptions& options) {
  command.add_option("-m,--model", options.model, "A GGUF file, or a name from `qevict models`")
      ->required()
      ->type_name("MODEL");
  command
      .add_option("-f,--file", options.files,
                  "Text to predict; repeatable: each has its rows, and there is a mean")
      ->required()
      ->type_name("FILE")
      ->allow_extra_args(false);
  command
      .add_option(
          "--codec", options.codecs,
          "Codecs of the history: k3v2 and the like, minmax2, minmax4, minmax8, q8, or all; "
          "several with commas (default: a few, and none where a cache is asked for)")
      ->delimiter(',')
      ->type_name("CODEC,...")
      ->allow_extra_args(false);
  command
      .add_option("-c,--context", options.lengths.context_tokens,
                  "Tokens of the text in front of the predicted ones")
      ->check(Between(1, 1u << 20))
      ->type_name("N")
      ->capture_default_str();
  command.add_option("-n,--tokens", options.lengths.decode_tokens, "Tokens that are predicted")
      ->check(Between(1, 65536))
      ->type_name("N")
      ->capture_default_str();
  command.add_option("--threads", options.threads, "Threads (default: one per physical core)")
      ->check(Between(1, kMostThreads))
      ->type_name("N");
  command.add_option("--chunk", options.chunk, "Tokens of the context per step")
      ->check(Between(1, 4096))
      ->type_name("N")
      ->capture_default_str();
  AddProductsFlag(command, options.products);
  AddCacheFlags(command, options.cache);
  AddAttentionFlag(command, options.attention);
  AddTraceFlag(command, options.trace);
}

}  // namespace

void AddFidelityCommand(CommandLine& line) {
  auto options = std::make_shared<FidelityOptions>();
  auto* command =
      line.Add({"fidelity", "Measure what a compressed cache changes in a model's predictions",
                kFidelityExamples},
               [options](OutputFormat format) { return MeasureFidelity(*options, format); });
  AddFlags(*command, *options);
  command->parse_complete_callback([command, options] {
    options->cache_asked =
        command->count("--policy") + command->count("--kv-budget") + command->count("--kv-type") >
        0;
  });
}

}  // namespace qevict::cli
