#include "tools/qevict/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "core/check.h"
#include "tools/qevict/interrupt.h"
#include "tools/qevict/units.h"

namespace qevict::cli {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string FormatSeconds(double seconds) {
  const auto whole = uint64_t(std::max(0.0, seconds) + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02} min", whole / 60, whole % 60);
  return fmt::format("{}:{:02} h", whole / 3600, whole / 60 % 60);
}

// The prompt's progress bar. A short prompt gets none.
class PrefillProgress {
 public:
  PrefillProgress(ProgressLine::Style style, uint32_t total) : line_(style) { Show(0, total); }

  void Update(uint32_t done, uint32_t total) {
    const double now = SecondsSince(start_);
    // Later tokens attend to more and take longer: what is left goes at the latest speed at best.
    // It may stand still: a layer is part of a token.
    if (now > last_seconds_ && done > last_done_)
      latest_tps_ = (done - last_done_) / (now - last_seconds_);
    last_seconds_ = now;
    last_done_ = done;
    Show(done, total);
  }

 private:
  void Show(uint32_t done, uint32_t total) {
    if (total < 64) return;
    std::string amounts = fmt::format("{} / {} tokens", FormatTokens(done), FormatTokens(total));
    if (done > 0) amounts += fmt::format(", {:.0f} tokens/s", done / last_seconds_);
    if (done > 0 && done < total) {
      amounts += fmt::format(", {} left", FormatSeconds((total - done) / latest_tps_));
    }
    // Always as wide as it gets, so that the bar beside it keeps its length.
    const size_t widest = 2 * FormatTokens(total).size() +
                          std::string_view(" /  tokens, 12345 tokens/s, 59:59 min left").size();
    amounts.resize(std::max(amounts.size(), widest), ' ');
    line_.Update("reading", double(done) / double(total), amounts);
  }

  ProgressLine line_;
  const Clock::time_point start_ = Clock::now();
  double last_seconds_ = 0.0, latest_tps_ = 1.0;
  uint32_t last_done_ = 0;
};

}  // namespace

ProgressLine::Style StyleOnTerminalOnly() {
  const ProgressLine::Style style = ProgressLine::StyleOfStderr();
  return style == ProgressLine::Style::kTerminal ? style : ProgressLine::Style::kSilent;
}

double Answer::prefill_tps() const {
  return prefill_seconds > 0.0 ? prefilled_tokens / prefill_seconds : 0.0;
}

double Answer::decode_tps() const {
  const size_t steps = outcome.tokens.empty() ? 0 : outcome.tokens.size() - 1;
  return outcome.decode_seconds > 0.0 ? double(steps) / outcome.decode_seconds : 0.0;
}

Result<Answer> AnswerPrompt(Engine& engine, Sequence& sequence, const AnswerRequest& request,
                            AnswerOutput* output) {
  QEVICT_CHECK_LT(sequence.size_tokens(), request.prompt.size());
  QEVICT_ASSIGN_OR_RETURN(Sampler sampler, Sampler::Create(engine.tokenizer(), *request.sampling));
  const size_t recent = std::min(request.prompt.size(), size_t(request.sampling->repeat_last_n));
  for (const Token token : request.prompt.last(recent)) {
    sampler.Accept(token, Sampler::Origin::kPrompt);
  }
  const CancelFn cancel = [output] {
    return Interrupted() || (output != nullptr && output->failed());
  };

  Answer answer;
  answer.prompt_tokens = uint32_t(request.prompt.size());
  const uint32_t size_before = sequence.size_tokens();
  const auto fresh = request.prompt.subspan(size_before);
  std::vector<float> logits;
  Status prefill;
  {
    PrefillProgress progress(request.progress, uint32_t(fresh.size()));
    const Clock::time_point start = Clock::now();
    prefill = engine.Prefill(
        sequence, fresh, &logits,
        [&](uint32_t done, uint32_t total) { progress.Update(done, total); }, cancel);
    answer.prefill_seconds = SecondsSince(start);
  }
  answer.prefilled_tokens = sequence.size_tokens() - size_before;
  if (!prefill.ok()) {
    if (prefill.error().code != ErrorCode::kCancelled) return tl::unexpected(prefill.error());
    answer.outcome.reason = StopReason::kCancelled;
    return answer;
  }
  const TextFn on_text = [output](std::string_view text) {
    if (output != nullptr) output->Write(text);
  };
  QEVICT_ASSIGN_OR_RETURN(answer.outcome, Generate({.engine = &engine,
                                                    .sequence = &sequence,
                                                    .sampler = &sampler,
                                                    .logits = std::move(logits),
                                                    .config = request.generate,
                                                    .on_text = on_text,
                                                    .cancel = cancel}));
  return answer;
}

}  // namespace qevict::cli
