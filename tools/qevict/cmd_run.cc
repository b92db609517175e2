#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "engine/model_catalog.h"
#include "tools/qevict/answer.h"
#include "tools/qevict/chat.h"
#include "tools/qevict/command.h"
#include "tools/qevict/interrupt.h"
#include "tools/qevict/print.h"
#include "tools/qevict/progress_line.h"
#include "tools/qevict/routing_trace.h"
#include "tools/qevict/run_options.h"
#include "tools/qevict/run_report.h"
#include "tools/qevict/text_source.h"
#include "tools/qevict/units.h"

namespace qevict::cli {
namespace {

constexpr char kRunExamples[] =
    "  qevict run -m smollm2 -p 'Why is the sky blue?'\n"
    "  qevict run -m qwen2.5-coder-0.5b -f report.txt -f notes.txt -p 'What do they disagree on?'\n"
    "  git diff | qevict run -m qwen2.5-coder-0.5b -f - -p 'Write a commit message.' -n 100\n"
    "  qevict run -m smollm2 -i --system 'Answer in one sentence.'\n"
    "  qevict run -m smollm2 --raw -p 'Once upon a time' --temp 0.8 --seed 7\n"
    "  qevict run -m smollm2 -p 'Name a city.' --json-schema '{\"type\": \"string\"}' --json";

// A conversation's context when none is given: room for some turns.
constexpr uint64_t kChatContext = 8192;

// What to answer. Empty only for a conversation that begins with its first line.
Result<std::string> ReadPrompt(const RunOptions& options) {
  if (options.prompt) QEVICT_RETURN_IF_ERROR(CheckUtf8(*options.prompt, "the text of -p"));
  if (options.system) QEVICT_RETURN_IF_ERROR(CheckUtf8(*options.system, "the text of --system"));
  std::string text;
  if (options.prompt || !options.files.empty()) {
    QEVICT_ASSIGN_OR_RETURN(text, ReadDocuments(options.files, options.prompt.value_or("")));
  } else if (!options.interactive) {
    if (isatty(STDIN_FILENO)) {
      return Fail(ErrorCode::kInvalidArgument,
                  "there is no prompt; give -p TEXT or -f FILE, pipe text in, or chat with -i");
    }
    QEVICT_ASSIGN_OR_RETURN(text, ReadTextFile("-"));
    // The line break of `echo` is not part of a message.
    if (!options.raw && text.ends_with('\n')) text.pop_back();
  } else {
    return text;
  }
  if (text.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "the prompt is empty; give it a text to answer");
  }
  return text;
}

struct Prompt {
  std::vector<Token> tokens;
  std::unique_ptr<ChatTemplate> chat_template;  // null: --raw
};

Result<Prompt> EncodePrompt(const Engine& engine, const RunOptions& options,
                            const std::string& text) {
  Prompt prompt;
  if (options.raw) {
    QEVICT_ASSIGN_OR_RETURN(
        prompt.tokens, engine.tokenizer().Encode(text, SpecialText::kParse, Bos::kModelDefault));
    if (prompt.tokens.empty()) {
      return Fail(ErrorCode::kBadFile, "the model's vocabulary has no token for the prompt");
    }
    return prompt;
  }
  QEVICT_ASSIGN_OR_RETURN(ChatTemplate chat_template, ChatTemplate::Load(engine.tokenizer()));
  prompt.chat_template = std::make_unique<ChatTemplate>(std::move(chat_template));
  if (text.empty()) return prompt;
  std::vector<ChatMessage> messages;
  if (options.system) messages.push_back({"system", *options.system});
  messages.push_back({"user", text});
  QEVICT_ASSIGN_OR_RETURN(prompt.tokens, prompt.chat_template->Encode(messages));
  return prompt;
}

Result<uint32_t> ChooseContext(uint64_t prompt_tokens, const RunOptions& options,
                               uint32_t model_tokens) {
  if (options.ctx > model_tokens) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--ctx {} is more than the {} tokens that the model was made for; lower it",
                    FormatTokens(options.ctx), FormatTokens(model_tokens)));
  }
  const uint64_t answer_tokens =
      options.generate.max_tokens == 0 ? model_tokens : options.generate.max_tokens;
  uint64_t wanted = prompt_tokens + answer_tokens;
  if (options.interactive) wanted = std::max(wanted + kChatContext / 2, kChatContext);
  if (options.ctx > 0) wanted = options.ctx;
  const uint32_t context = uint32_t(std::min<uint64_t>(wanted, model_tokens));
  if (prompt_tokens > context) {
    return Fail(
        ErrorCode::kContextFull,
        fmt::format("the prompt has {} tokens, the context {}; {}", FormatTokens(prompt_tokens),
                    FormatTokens(context),
                    prompt_tokens <= model_tokens
                        ? fmt::format("raise --ctx to at most {}", FormatTokens(model_tokens))
                        : "the model was made for no more, so shorten the prompt"));
  }
  return context;
}

Result<std::unique_ptr<Engine>> LoadEngine(const EngineConfig& config, const RunOptions& options) {
  ProgressLine line(options.quiet ? ProgressLine::Style::kSilent : StyleOnTerminalOnly());
  const ProgressFn progress = [&line](uint32_t done, uint32_t total) {
    line.Update("fitting the codec to the model, once", double(done) / double(total),
                fmt::format("{} / {} tokens", FormatTokens(done), FormatTokens(total)));
  };
  return Engine::Load(config, progress, Interrupted);
}

struct Answering {
  Engine* engine;
  Sequence* sequence;
  RoutingTrace* trace;  // null: none
  const RunOptions* options;
  OutputFormat format;
};

Result<ExitStatus> AnswerOnce(const Answering& args, const Prompt& prompt) {
  Engine& engine = *args.engine;
  Sequence& sequence = *args.sequence;
  const RunOptions& options = *args.options;
  const bool json = args.format == OutputFormat::kJson;
  AnswerOutput output;
  const AnswerRequest request{
      .prompt = prompt.tokens,
      .sampling = &options.sampling,
      .generate = &options.generate,
      .progress = options.quiet ? ProgressLine::Style::kSilent : StyleOnTerminalOnly()};
  QEVICT_ASSIGN_OR_RETURN(const Answer answer,
                          AnswerPrompt(engine, sequence, request, json ? nullptr : &output));
  // Before the object of --json, which is the only one and says both.
  const Status trace = args.trace != nullptr ? args.trace->Finish() : Status();
  const RunFacts facts{.model = options.model,
                       .context_tokens = sequence.capacity_tokens(),
                       .threads = engine.threads(),
                       .isa = engine.isa_name(),
                       .policy = CachePolicyName(options.cache.policy),
                       .kv = sequence.kv_usage()};
  if (json) output.Write(RunJson(answer, facts, trace));
  if (!options.quiet) {
    output.EndLineOnTerminal();
    Print(stderr, "{}", RunSummary(answer, facts));
  }
  QEVICT_RETURN_IF_ERROR(output.status());
  if (!trace.ok()) {
    if (json) return ExitStatusOf(trace.error().code);
    return tl::unexpected(trace.error());
  }
  return Interrupted() ? ExitStatus::kInterrupted : ExitStatus::kOk;
}

Result<ExitStatus> Run(RunOptions options, OutputFormat format) {
  QEVICT_RETURN_IF_ERROR(CheckRunOptions(options));
  QEVICT_RETURN_IF_ERROR(options.cache.Validate());
  if (options.interactive && format == OutputFormat::kJson) {
    return Fail(ErrorCode::kInvalidArgument, "--json is for one answer; drop it or -i");
  }
  QEVICT_ASSIGN_OR_RETURN(const std::string text, ReadPrompt(options));
  QEVICT_RETURN_IF_ERROR(LoadGrammar(options));
  QEVICT_ASSIGN_OR_RETURN(const std::string path, ResolveModel(options.model));
  CatchInterrupts();
  options.cache.tables_folder = TablesFolder();
  if (options.cache.codes() && options.cache.tables_folder.empty() && !options.quiet) {
    Print(stderr,
          "neither QEVICT_CACHE nor HOME says where the codec's tables are kept, so that they are "
          "measured at every start\n");
  }
  std::vector<std::string> inputs = options.files;
  inputs.push_back(path);
  if (options.grammar_file) inputs.push_back(*options.grammar_file);
  if (options.json_schema && options.json_schema->starts_with('@')) {
    inputs.push_back(options.json_schema->substr(1));
  }
  QEVICT_ASSIGN_OR_RETURN(
      const std::unique_ptr<RoutingTrace> trace,
      RoutingTrace::Open(options.trace, {options.model, options.cache, options.attention}, inputs));
  QEVICT_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                          LoadEngine({.model_path = path,
                                      .threads = options.threads,
                                      .prefill_chunk = options.chunk,
                                      .cache = options.cache,
                                      .attention = options.attention,
                                      .products = options.products,
                                      .routing_observer = trace.get()},
                                     options));
  QEVICT_ASSIGN_OR_RETURN(const Prompt prompt, EncodePrompt(*engine, options, text));
  QEVICT_ASSIGN_OR_RETURN(
      const uint32_t context,
      ChooseContext(prompt.tokens.size(), options, engine->hyperparameters().context_train));
  QEVICT_RETURN_IF_ERROR(Sampler::Create(engine->tokenizer(), options.sampling));
  if (Interrupted())
    return Fail(ErrorCode::kCancelled, "stopped while the model was loaded; nothing was answered");
  QEVICT_ASSIGN_OR_RETURN(std::unique_ptr<Sequence> sequence, engine->NewSequence(context));
  if (prompt.chat_template && prompt.chat_template->is_default() && !options.quiet) {
    Print(stderr, "the model has no chat template; ChatML is used (--raw uses none)\n");
  }
  if (options.interactive) {
    QEVICT_ASSIGN_OR_RETURN(const ExitStatus status, Chat(*engine, std::move(sequence),
                                                          *prompt.chat_template, options, text));
    if (trace) QEVICT_RETURN_IF_ERROR(trace->Finish());
    return status;
  }
  return AnswerOnce({engine.get(), sequence.get(), trace.get(), &options, format}, prompt);
}

}  // namespace

void AddRunCommand(CommandLine& line) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = line.Add({"run", "Answer a prompt, or chat, with a model", kRunExamples},
                               [options](OutputFormat format) { return Run(*options, format); });
  AddRunFlags(*command, *options);
}

}  // namespace qevict::cli
