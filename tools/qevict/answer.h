// Prefill and generation of one answer, with progress, for `qevict run`.
#pragma once

#include <cstdint>
#include <span>

#include "engine/engine.h"
#include "engine/generator.h"
#include "tools/qevict/answer_output.h"
#include "tools/qevict/progress_line.h"

namespace qevict::cli {

struct AnswerRequest {
  std::span<const Token> prompt;  // begins with all tokens of the sequence, and is longer
  const SamplingConfig* sampling = nullptr;
  const GenerateConfig* generate = nullptr;
  ProgressLine::Style progress = ProgressLine::Style::kSilent;
};

struct Answer {
  uint32_t prompt_tokens = 0;
  uint32_t prefilled_tokens = 0;  // of the prompt, in this call
  double prefill_seconds = 0.0;
  GenerateOutcome outcome;  // kCancelled without tokens: interrupted while reading the prompt

  double prefill_tps() const;
  double decode_tps() const;  // 0 when there was no step to measure
};

// A progress bar is for people: none where standard error is no terminal.
ProgressLine::Style StyleOnTerminalOnly();

// Ctrl-C or a failed output ends the answer with kCancelled and no error.
[[nodiscard]] Result<Answer> AnswerPrompt(
    Engine& engine, Sequence& sequence, const AnswerRequest& request,
    AnswerOutput* output);  // nullptr: the text is only returned

}  // namespace qevict::cli
