#include "engine/generator.h"

#include <fmt/format.h>

#include <chrono>
#include <limits>

#include "core/utf8.h"
#include "engine/text_stream.h"

namespace qevict {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<Token> EndOfGenerationTokens(const Tokenizer& tokenizer) {
  std::vector<Token> tokens;
  for (Token token = 0; size_t(token) < tokenizer.vocab_size(); ++token) {
    if (tokenizer.IsEndOfGeneration(token)) tokens.push_back(token);
  }
  return tokens;
}

// One answer in the making.
class Generation {
 public:
  Generation(const Tokenizer& tokenizer, const GenerateConfig& config, const TextFn& on_text)
      : tokenizer_(tokenizer), config_(config), on_text_(on_text), stream_(config.stop_strings) {
    if (config.ignore_end_of_text) forbidden_ = EndOfGenerationTokens(tokenizer);
  }

  // Samples one token and gives its text out; a reason when it is the last.
  std::optional<StopReason> Step(Sampler& sampler, std::vector<float>& logits) {
    for (const Token token : forbidden_) {
      logits[size_t(token)] = -std::numeric_limits<float>::infinity();
    }
    const Token token = sampler.Sample(logits);
    if (tokenizer_.IsEndOfGeneration(token)) return StopReason::kEndOfText;
    sampler.Accept(token, Sampler::Origin::kGenerated);
    const Clock::time_point now = Clock::now();
    if (outcome_.tokens.empty()) first_token_ = now;
    outcome_.decode_seconds = std::chrono::duration<double>(now - first_token_).count();
    outcome_.tokens.push_back(token);
    GiveOut(stream_.Add(tokenizer_.Piece(token)));
    if (stream_.stopped()) return StopReason::kStopString;
    if (outcome_.tokens.size() == config_.max_tokens) return StopReason::kMaxTokens;
    return std::nullopt;
  }

  Token last_token() const { return outcome_.tokens.back(); }

  GenerateOutcome Finish(StopReason reason) && {
    GiveOut(stream_.Finish());
    outcome_.reason = reason;
    return std::move(outcome_);
  }

 private:
  void GiveOut(const std::string& text) {
    if (text.empty()) return;
    outcome_.text += text;
    if (on_text_) on_text_(text);
  }
  const Tokenizer& tokenizer_;
  const GenerateConfig& config_;
  const TextFn& on_text_;
  TextStream stream_;
  std::vector<Token> forbidden_;
  GenerateOutcome outcome_;
  Clock::time_point first_token_;
};

}  // namespace

Status CheckStopStrings(const std::vector<std::string>& stop_strings) {
  for (const std::string& stop : stop_strings) {
    if (stop.empty()) {
      return Fail(ErrorCode::kInvalidArgument, "--stop is empty; give the text to stop at");
    }
    if (FirstInvalidUtf8(stop)) {
      return Fail(ErrorCode::kInvalidArgument, "--stop is not valid UTF-8; convert it to UTF-8");
    }
  }
  return {};
}

std::string_view StopReasonName(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfText:
      return "stop";
    case StopReason::kMaxTokens:
      return "length";
    case StopReason::kStopString:
      return "stop_string";
    case StopReason::kContextFull:
      return "context";
    case StopReason::kCancelled:
      return "cancelled";
  }
  return "stop";
}

Result<GenerateOutcome> Generate(GenerateArgs args) {
  QEVICT_RETURN_IF_ERROR(CheckStopStrings(args.config->stop_strings));
  Generation generation(args.engine->tokenizer(), *args.config, args.on_text);
  while (true) {
    if (args.cancel && args.cancel()) return std::move(generation).Finish(StopReason::kCancelled);
    if (const auto reason = generation.Step(*args.sampler, args.logits)) {
      return std::move(generation).Finish(*reason);
    }
    const Token token = generation.last_token();
    BatchItem item{args.sequence, {&token, 1}, LogitRows::kLast, &args.logits};
    const Status run = args.engine->Run({&item, 1}, args.cancel);
    if (run.ok()) continue;
    if (run.error().code == ErrorCode::kContextFull) {
      return std::move(generation).Finish(StopReason::kContextFull);
    }
    if (run.error().code == ErrorCode::kCancelled) {
      return std::move(generation).Finish(StopReason::kCancelled);
    }
    return tl::unexpected(run.error());
  }
}

}  // namespace qevict
