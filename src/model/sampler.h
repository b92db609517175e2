// Chooses the next token from logits, through libllama's common sampler chain (penalties, top-k, top-p, min-p, temperature,
// grammar).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/token.h"
#include "model/tokenizer.h"
#include "qevict/status.h"

struct common_sampler;

namespace qevict {

struct SamplingConfig {
  float temperature = 0.0f;     // >= 0; 0 is greedy
  int32_t top_k = 40;           // 0: whole vocabulary
  float top_p = 0.95f;          // (0, 1]; 1: off
  float min_p = 0.05f;          // [0, 1]; 0: off
  float repeat_penalty = 1.0f;  // > 0; 1: off
  int32_t repeat_last_n = 64;   // tokens that the penalty looks at; 0: none
  uint32_t seed = 0;
  std::string grammar;          // GBNF; empty: none
  std::string json_schema;      // JSON schema text, turned into a grammar; empty: none. Not both.
};

class Sampler {
 public:
  // Errors: kInvalidArgument with the name of the option that is out of range, or the grammar's error.
  static Result<Sampler> Create(const Tokenizer& tokenizer, const SamplingConfig& config);
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;
  ~Sampler();

  // logits: [vocab_size]. Ties go to the lower token id in greedy mode. Does not record the token.
  Token Sample(std::span<const float> logits);
  // Records a token: penalties see it. Generated tokens also advance the grammar.
  enum class Origin { kPrompt, kGenerated };
  void Accept(Token token, Origin origin);

 private:
  struct Deleter { void operator()(common_sampler* sampler) const; };
  Sampler() = default;
  std::unique_ptr<common_sampler, Deleter> sampler_;
  std::vector<float> scratch_;
};

}  // namespace qevict
