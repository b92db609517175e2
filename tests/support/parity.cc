#include "support/parity.h"

#include <fmt/format.h>

#include "support/logits.h"

namespace qevict::test {
namespace {

// Adds one row to `result`; `where` names it in messages.
void CompareRow(std::span<const float> ours, std::span<const float> theirs,
                const std::string& where, ParityResult& result) {
  const LogitDifference difference = CompareLogits(ours, theirs);
  ++result.rows;
  result.worst_cosine = std::min(result.worst_cosine, difference.cosine);
  if (!(difference.cosine >= ParityPair::kMinCosine)) {
    result.failure = fmt::format("{}: cosine {:.6f}, largest difference {}", where,
                                 difference.cosine, difference.largest);
    return;
  }
  const Token our_best = Greedy(ours), their_best = Greedy(theirs);
  if (our_best == their_best) return;
  const float gap = theirs[size_t(their_best)] - theirs[size_t(our_best)];
  const float noise = ParityPair::kTieNoise * difference.rms;
  if (gap > noise) {
    result.failure = fmt::format("{}: best token {} instead of {}, {} apart with a noise of {}",
                                 where, our_best, their_best, gap, noise);
    return;
  }
  ++result.ties;
  fmt::print("tie at {}: tokens {} and {} are {} apart, noise {}\n", where, our_best, their_best,
             gap, noise);
}

}  // namespace

Result<ParityPair> ParityPair::Load(const std::string& path, uint32_t context_tokens) {
  ParityPair pair;
  pair.context_tokens_ = context_tokens;
  QEVICT_ASSIGN_OR_RETURN(pair.engine_, Engine::Load({.model_path = path, .threads = 2}));
  QEVICT_ASSIGN_OR_RETURN(
      pair.reference_,
      LlamaReference::Load(path, {.context_tokens = context_tokens, .threads = 2}));
  return pair;
}

Result<ParityResult> ParityPair::Compare(std::span<const Token> prompt, uint32_t decode_steps) {
  QEVICT_ASSIGN_OR_RETURN(const std::unique_ptr<Sequence> sequence,
                          engine_->NewSequence(context_tokens_));
  reference_->Clear();
  ParityResult result;
  std::vector<float> ours;
  QEVICT_RETURN_IF_ERROR(engine_->Prefill(*sequence, prompt, &ours));
  QEVICT_ASSIGN_OR_RETURN(std::vector<float> theirs, reference_->Decode(prompt));
  CompareRow(ours, theirs, fmt::format("the end of {} tokens", prompt.size()), result);
  for (uint32_t step = 0; step < decode_steps && result.failure.empty(); ++step) {
    const Token next[] = {Greedy(theirs)};
    BatchItem item{.sequence = sequence.get(), .tokens = next, .logits_out = &ours};
    QEVICT_RETURN_IF_ERROR(engine_->Run({&item, 1}, {}));
    QEVICT_ASSIGN_OR_RETURN(theirs, reference_->Decode(next));
    CompareRow(ours, theirs, fmt::format("step {} after {} tokens", step, prompt.size()), result);
  }
  return result;
}

}  // namespace qevict::test
