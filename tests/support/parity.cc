#include "support/parity.h"

#include <fmt/format.h>

#include <algorithm>

#include "support/logits.h"

namespace qevict::test {
namespace {

using Rows = std::vector<std::vector<float>>;  // the last logits of each reference

// Adds one row to `result`; `where` names it in messages.
void CompareRow(std::span<const float> ours, const Rows& theirs, const std::string& where,
                ParityResult& result) {
  const LogitDifference difference = CompareLogits(ours, theirs[0]);
  double spread = 0.0;
  for (size_t i = 1; i < theirs.size(); ++i) {
    spread = std::max(spread, 1.0 - CompareLogits(theirs[i], theirs[0]).cosine);
  }
  ++result.rows;
  result.worst_cosine = std::min(result.worst_cosine, difference.cosine);
  result.mean_distance += (1.0 - difference.cosine - result.mean_distance) / result.rows;
  result.mean_spread += (spread - result.mean_spread) / result.rows;
  // A row's own spread is the larger of two samples and may be small by chance; the mean is not.
  const double bound = std::max(1.0 - ParityPair::kMinCosine,
                                ParityPair::kSpreadFactor * std::max(spread, result.mean_spread));
  if (!(1.0 - difference.cosine <= bound)) {
    result.failure =
        fmt::format("{}: cosine {:.6f}, largest difference {}, libllama's own spread {:.6f}", where,
                    difference.cosine, difference.largest, spread);
    return;
  }
  const Token our_best = Greedy(ours), their_best = Greedy(theirs[0]);
  if (our_best == their_best) return;
  const float gap = theirs[0][size_t(their_best)] - theirs[0][size_t(our_best)];
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

Result<ParityPair> ParityPair::Load(const ParityPaths& paths, uint32_t context_tokens,
                                    ParityBound bound) {
  ParityPair pair;
  pair.context_tokens_ = context_tokens;
  // ggml's products, which libllama has too: the bounds are those of the same arithmetic.
  QEVICT_ASSIGN_OR_RETURN(
      pair.engine_,
      Engine::Load({.model_path = paths.engine, .threads = 2, .products = Products::kGgml}));
  std::vector<ReferenceOptions> options = {{.context_tokens = context_tokens}};
  if (bound == ParityBound::kOwnSpread) {
    options.push_back({.flash_attention = FlashAttention::kOn, .context_tokens = context_tokens});
    options.push_back({.kv_type = LlamaKvType::kF32, .context_tokens = context_tokens});
  }
  for (const ReferenceOptions& each : options) {
    QEVICT_ASSIGN_OR_RETURN(pair.references_.emplace_back(),
                            LlamaReference::Load(paths.reference, each));
  }
  return pair;
}

Result<ParityResult> ParityPair::Compare(std::span<const Token> prompt, uint32_t decode_steps) {
  QEVICT_ASSIGN_OR_RETURN(const std::unique_ptr<Sequence> sequence,
                          engine_->NewSequence(context_tokens_));
  Rows theirs(references_.size());
  const auto decode = [&](std::span<const Token> tokens) -> Status {
    for (size_t i = 0; i < references_.size(); ++i) {
      QEVICT_ASSIGN_OR_RETURN(theirs[i], references_[i]->Decode(tokens));
    }
    return {};
  };
  for (const auto& reference : references_) reference->Clear();
  ParityResult result;
  std::vector<float> ours;
  QEVICT_RETURN_IF_ERROR(engine_->Prefill(*sequence, prompt, &ours));
  QEVICT_RETURN_IF_ERROR(decode(prompt));
  CompareRow(ours, theirs, fmt::format("the end of {} tokens", prompt.size()), result);
  for (uint32_t step = 0; step < decode_steps && result.failure.empty(); ++step) {
    const Token next[] = {Greedy(theirs[0])};
    BatchItem item{.sequence = sequence.get(), .tokens = next, .logits_out = &ours};
    QEVICT_RETURN_IF_ERROR(engine_->Run({&item, 1}, {}));
    QEVICT_RETURN_IF_ERROR(decode(next));
    CompareRow(ours, theirs, fmt::format("step {} after {} tokens", step, prompt.size()), result);
  }
  return result;
}

}  // namespace qevict::test
