// Chooses the next token from logits. Penalties, top-k and the greedy choice run on the logits as
// they are, without a copy or a sort of the vocabulary; what is left of it goes through libllama's
// sampler chain (top-p, min-p, temperature, random draw) and grammar.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/token.h"
#include "model/tokenizer.h"
#include "model/top_logits.h"
#include "qevict/status.h"

struct llama_sampler;
struct llama_token_data;

namespace qevict {

struct SamplingConfig {
  float temperature = 0.0f;     // >= 0; below 1e-6 is greedy, and top-k, top-p, min-p don't matter
  int32_t top_k = 40;           // >= 0; 0: whole vocabulary
  float top_p = 0.95f;          // (0, 1]; 1: off
  float min_p = 0.05f;          // [0, 1]; 0: off
  float repeat_penalty = 1.0f;  // > 0; 1: off
  int32_t repeat_last_n = 64;   // >= 0; tokens that the penalty looks at; 0: none
  uint32_t seed = 0;            // the same seed gives the same tokens for the same logits
  std::string grammar{};        // GBNF, starts at rule `root`; empty: none
  std::string json_schema{};    // turned into a grammar; empty: none. Not both.
};

// Error kInvalidArgument: an option that is out of range, named as its flag. Grammars are not
// looked at.
Status CheckSampling(const SamplingConfig& config);

// Applied in this order: penalty, grammar, top-k, top-p, min-p, temperature, draw.
class Sampler {
 public:
  // `tokenizer` must outlive the sampler. Errors: kInvalidArgument with the flag of the option that
  // is out of range, or the grammar's error.
  [[nodiscard]] static Result<Sampler> Create(const Tokenizer& tokenizer,
                                              const SamplingConfig& config);
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;
  ~Sampler();

  // logits: [vocab_size]; NaN counts as impossible. Ties go to the lower token id in greedy mode.
  // Does not record the token. When no token is possible (the grammar allows no more), an
  // end-of-generation token.
  Token Sample(std::span<const float> logits);
  // Records a token: penalties see it. Generated tokens also advance the grammar; one that the
  // grammar does not allow ends it, so that Sample then gives an end-of-generation token.
  enum class Origin { kPrompt, kGenerated };
  void Accept(Token token, Origin origin);

 private:
  struct Deleter {
    void operator()(llama_sampler* sampler) const;
  };
  using LlamaSampler = std::unique_ptr<llama_sampler, Deleter>;
  Sampler(const Tokenizer& tokenizer, const SamplingConfig& config);
  Status LoadGrammar();
  void RefreshOverrides(std::span<const float> logits);
  bool GrammarAllows(Token token) const;
  // Fill candidates_ with what the grammar allows: all tokens, or the best `count`, descending.
  void PickAllowed(const LogitView& view);
  void PickAllowed(const LogitView& view, size_t count);
  void KeepAllowed();
  enum class Order { kDescending, kNone };
  Token Draw(Order order);

  const Tokenizer* tokenizer_;
  SamplingConfig config_;
  LlamaSampler chain_, grammar_;  // grammar_ is null when there is none
  enum class GrammarState { kNone, kOpen, kEnded } grammar_state_ = GrammarState::kNone;
  std::deque<Token> recent_;            // the last repeat_last_n; empty without a penalty
  std::vector<ScoredToken> overrides_;  // penalised and suppressed tokens, ascending
  std::vector<ScoredToken> best_;
  std::vector<llama_token_data> candidates_;
};

}  // namespace qevict
