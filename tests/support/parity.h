// The engine and libllama side by side on one file.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "support/llama_reference.h"

namespace qevict::test {

enum class ParityBound {
  // Every row's cosine is at least kMinCosine: for weights of 16 bits and more.
  kCosine,
  // The same, or the row is no further from libllama's than a few times what libllama's rows are
  // from each other when only its attention changes (flash attention, f32 keys and values): for
  // quantized weights, where ggml rounds activations to 8 bits and a sum in another order moves
  // roundings by whole steps.
  kOwnSpread,
};

struct ParityResult {
  uint32_t rows = 0;    // of logits compared
  uint32_t ties = 0;    // rows whose best token differed, with both candidates within the noise
  std::string failure;  // empty: every row agreed
  double worst_cosine = 1.0;
  double mean_distance = 0.0;  // of 1 - cosine over the rows
  double mean_spread = 0.0;    // the same between libllama's variants; 0 with kCosine
};

struct ParityPaths {
  std::string engine, reference;  // different only to show that a comparison can fail
};

class ParityPair {
 public:
  // Errors of either side.
  [[nodiscard]] static Result<ParityPair> Load(const ParityPaths& paths, uint32_t context_tokens,
                                               ParityBound bound);

  // The prompt in both, then `decode_steps` greedy tokens of the reference, fed to both. A row
  // agrees when it is within the bound and the best tokens are equal. They may differ at a tie: the
  // reference's own two candidates lie closer than kTieNoise times the root mean square difference
  // of the two rows. Ties are printed.
  [[nodiscard]] Result<ParityResult> Compare(std::span<const Token> prompt, uint32_t decode_steps);

  Engine& engine() { return *engine_; }
  LlamaReference& reference() { return *references_[0]; }

  static constexpr double kMinCosine = 0.9999;
  // The difference of two candidates' errors has sqrt(2) times the deviation of one; this is 3.5 of
  // its deviations.
  static constexpr float kTieNoise = 5.0f;
  // The largest of a few hundred rows may exceed the spread of a row, itself the larger of two
  // samples, by this.
  static constexpr double kSpreadFactor = 8.0;

 private:
  ParityPair() = default;
  std::unique_ptr<Engine> engine_;
  // [0] is the one compared with, the others are its variants.
  std::vector<std::unique_ptr<LlamaReference>> references_;
  uint32_t context_tokens_ = 0;
};

}  // namespace qevict::test
