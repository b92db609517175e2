// The engine and libllama side by side on one file.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "engine/engine.h"
#include "support/llama_reference.h"

namespace qevict::test {

struct ParityResult {
  double worst_cosine = 1.0;
  uint32_t rows = 0;    // of logits compared
  uint32_t ties = 0;    // rows whose best token differed, with both candidates within the noise
  std::string failure;  // empty: every row agreed
};

class ParityPair {
 public:
  // Errors of either side.
  static Result<ParityPair> Load(const std::string& path, uint32_t context_tokens);

  // The prompt in both, then `decode_steps` greedy tokens of the reference, fed to both. A row
  // agrees when the cosine is at least kMinCosine and the best tokens are equal. They may differ at
  // a tie: the reference's own two candidates lie closer than kTieNoise times the root mean square
  // difference of the two rows. Ties are printed.
  Result<ParityResult> Compare(std::span<const Token> prompt, uint32_t decode_steps);

  Engine& engine() { return *engine_; }
  LlamaReference& reference() { return *reference_; }

  static constexpr double kMinCosine = 0.9999;
  // The difference of two candidates' errors has sqrt(2) times the deviation of one; this is 3.5 of
  // its deviations, and a tie can only be one where the bound of the cosine holds.
  static constexpr float kTieNoise = 5.0f;

 private:
  ParityPair() = default;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<LlamaReference> reference_;
  uint32_t context_tokens_ = 0;
};

}  // namespace qevict::test
