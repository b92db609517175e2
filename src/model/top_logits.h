// The largest of a vocabulary's logits, without sorting or copying the vocabulary.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "model/token.h"

namespace qevict {

struct ScoredToken {
  Token token;
  float logit;
};

// Logits of which a few are replaced, as penalties do. NaN counts as -infinity, and a token with
// -infinity is never chosen.
struct LogitView {
  std::span<const float> logits;           // [vocab]
  std::span<const ScoredToken> overrides;  // by token, ascending, each once
};

// Equal logits: the lower token id. nullopt: no token has a finite logit.
std::optional<ScoredToken> LargestLogit(const LogitView& view);

// All finite ones, in no particular order. `out` is overwritten.
void FiniteLogits(const LogitView& view, std::vector<ScoredToken>& out);

// The `count` largest, descending, equal logits by ascending token id; fewer when fewer are finite.
// `out` is overwritten.
void LargestLogits(const LogitView& view, size_t count, std::vector<ScoredToken>& out);

}  // namespace qevict
