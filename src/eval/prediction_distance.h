// How far one prediction of a next token is from another.
#pragma once

#include <span>

#include "model/token.h"

namespace qevict {

struct PredictionDistance {
  // KL(full || other) over the whole vocabulary, in nats: sum_i p_i (log p_i - log q_i).
  double kl = 0.0;
  // log p - log q of the token that came: positive when `other` expected it less.
  double log_loss_change = 0.0;
  bool same_top = false;  // the likeliest token is the same one; of equals the first counts
};

// Logits of the same vocabulary; `next` is in it. Sums are taken in double: equal logits give
// exactly 0, and a difference of logits of 1e-4 shows. Logits that are not finite give a KL that is
// not.
PredictionDistance ComparePredictions(std::span<const float> full, std::span<const float> other,
                                      Token next);

}  // namespace qevict
