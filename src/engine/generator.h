// Text out of a sequence: samples, stops, and hands out UTF-8 characters once they are complete.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "model/sampler.h"

namespace qevict {

enum class StopReason { kEndOfText, kMaxTokens, kStopString, kContextFull, kCancelled };
// "stop", "length", "stop_string", "context", "cancelled"
std::string_view StopReasonName(StopReason reason);

struct GenerateConfig {
  uint32_t max_tokens = 512;                // 0: until the context is full
  std::vector<std::string> stop_strings{};  // none is ever part of the output
  bool ignore_end_of_text = false;          // for benchmarks
};

// Error kInvalidArgument: an empty stop string, or one that is not valid UTF-8.
Status CheckStopStrings(const std::vector<std::string>& stop_strings);

struct GenerateOutcome {
  std::string text;
  std::vector<Token> tokens;  // generated, the end-of-text token excluded
  StopReason reason = StopReason::kEndOfText;
  double decode_seconds = 0.0;  // from the first sampled token to the last; tokens.size() - 1 steps
};

// Called with pieces of text that are valid UTF-8 and contain no part of a stop string.
using TextFn = std::function<void(std::string_view)>;

struct GenerateArgs {
  Engine* engine = nullptr;
  Sequence* sequence = nullptr;  // of that engine, not empty
  Sampler* sampler = nullptr;
  std::vector<float> logits{};  // of the sequence's last token
  const GenerateConfig* config = nullptr;
  TextFn on_text{};   // may be empty
  CancelFn cancel{};  // may be empty
};

// A token is run only when another one is to follow: on return the sequence holds all tokens of the
// outcome, or all but the last. Errors: those of CheckStopStrings, and what Engine::Run returns
// except kContextFull and kCancelled, which are reasons to stop.
[[nodiscard]] Result<GenerateOutcome> Generate(GenerateArgs args);

}  // namespace qevict
