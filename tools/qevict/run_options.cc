#include "tools/qevict/run_options.h"

#include <CLI/CLI.hpp>

#include "core/cpu_count.h"
#include "tools/qevict/between.h"
#include "tools/qevict/cache_options.h"
#include "tools/qevict/routing_trace.h"
#include "tools/qevict/text_source.h"

namespace qevict::cli {
namespace {

constexpr uint32_t kMaxCount = uint32_t{1} << 31;

}  // namespace

void AddRunFlags(CLI::App& command, RunOptions& options) {
  command
      .add_option("-m,--model", options.model, "Model: a GGUF file, or a name of `qevict models`")
      ->required()
      ->type_name("MODEL");
  command.add_option("-p,--prompt", options.prompt, "What to answer")->type_name("TEXT");
  command
      .add_option("-f,--file", options.files,
                  "Text that comes before the prompt; repeatable; - is standard input")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command.add_option("--system", options.system, "Instruction that stands before everything else")
      ->type_name("TEXT");
  command.add_flag("--raw", options.raw,
                   "No chat template: continue the text; control tokens may be spelled in it");
  command.add_flag("-i,--interactive", options.interactive,
                   "Chat: every line is a message; Ctrl-C stops an answer, Ctrl-D ends");

  constexpr char kAnswer[] = "Answer";
  command
      .add_option("-n,--max-tokens", options.generate.max_tokens,
                  "Longest answer in tokens; 0: until the context is full")
      ->type_name("N")
      ->check(Between(0, kMaxCount))
      ->capture_default_str()
      ->group(kAnswer);
  command
      .add_option("--stop", options.generate.stop_strings,
                  "End the answer where this text begins; repeatable")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group(kAnswer);
  command
      .add_flag("--ignore-eos", options.generate.ignore_end_of_text,
                "Go on when the model ends its answer")
      ->group(kAnswer);
  const auto sampling = [&](const std::string& name, auto& value, const std::string& description,
                            const std::string& type) {
    command.add_option(name, value, description)
        ->type_name(type)
        ->capture_default_str()
        ->group(kAnswer);
  };
  SamplingConfig& config = options.sampling;
  sampling("--temp", config.temperature, "Temperature; 0: always the likeliest token", "X");
  sampling("--top-k", config.top_k, "Draw among the K likeliest; 0: among all", "K");
  sampling("--top-p", config.top_p, "Draw among the likeliest that add up to P; 1: off", "P");
  sampling("--min-p", config.min_p, "Draw among those with P times the best's probability; 0: off",
           "P");
  sampling("--repeat-penalty", config.repeat_penalty, "Make recent tokens less likely; 1: off",
           "X");
  sampling("--repeat-last-n", config.repeat_last_n, "Tokens that count as recent", "N");
  sampling("--seed", config.seed, "Another number, another random answer", "N");
  command
      .add_option("--grammar-file", options.grammar_file, "The answer follows this GBNF grammar")
      ->type_name("FILE")
      ->group(kAnswer);
  command
      .add_option("--json-schema", options.json_schema,
                  "The answer is JSON of this schema; @FILE reads it from a file")
      ->type_name("JSON")
      ->group(kAnswer);

  constexpr char kEngine[] = "Engine";
  command
      .add_option("--ctx", options.ctx,
                  "Tokens of prompt and answer together (default: what they need)")
      ->type_name("N")
      ->check(Between(1, kMaxCount))
      ->group(kEngine);
  command.add_option("--threads", options.threads, "Threads (default: one per physical core)")
      ->type_name("N")
      ->check(Between(1, kMostThreads))
      ->group(kEngine);
  command.add_option("--chunk", options.chunk, "Tokens of the prompt per step")
      ->type_name("N")
      ->check(Between(1, 4096))
      ->capture_default_str()
      ->group(kEngine);
  AddProductsFlag(command, options.products);
  AddCacheFlags(command, options.cache);
  AddAttentionFlag(command, options.attention);
  AddTraceFlag(command, options.trace);
  command.add_flag("--quiet", options.quiet, "Nothing on standard error but errors");
}

Status CheckRunOptions(const RunOptions& options) {
  const auto exclude = [](const char* message) {
    return Fail(ErrorCode::kInvalidArgument, message);
  };
  if (options.raw && options.system) {
    return exclude("--system needs the chat template; drop --raw or put the text into -p");
  }
  if (options.raw && options.interactive) {
    return exclude("-i needs the chat template; drop --raw");
  }
  if (options.grammar_file && options.json_schema) {
    return exclude("--grammar-file and --json-schema exclude each other; give one of them");
  }
  // An answer without the constraint that was asked for would look like one that keeps it.
  if (options.grammar_file && options.grammar_file->empty()) {
    return exclude("--grammar-file is empty; name a file with a grammar");
  }
  if (options.json_schema && options.json_schema->empty()) {
    return exclude("--json-schema is empty; give a schema, or @FILE with one");
  }
  QEVICT_RETURN_IF_ERROR(CheckStopStrings(options.generate.stop_strings));
  return CheckSampling(options.sampling);
}

Status LoadGrammar(RunOptions& options) {
  if (options.grammar_file) {
    QEVICT_ASSIGN_OR_RETURN(options.sampling.grammar, ReadTextFile(*options.grammar_file));
    if (options.sampling.grammar.empty()) {
      return Fail(ErrorCode::kInvalidArgument,
                  "the file of --grammar-file is empty; it needs a rule `root`");
    }
  }
  if (!options.json_schema) return {};
  options.sampling.json_schema = *options.json_schema;
  if (options.json_schema->starts_with('@')) {
    QEVICT_ASSIGN_OR_RETURN(options.sampling.json_schema,
                            ReadTextFile(options.json_schema->substr(1)));
    if (options.sampling.json_schema.empty()) {
      return Fail(ErrorCode::kInvalidArgument,
                  "the file of --json-schema is empty; {} allows any JSON");
    }
  }
  return {};
}

}  // namespace qevict::cli
