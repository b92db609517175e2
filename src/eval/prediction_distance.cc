#include "eval/prediction_distance.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace qevict {

PredictionDistance ComparePredictions(std::span<const float> full, std::span<const float> other,
                                      Token next) {
  QEVICT_CHECK_EQ(full.size(), other.size());
  QEVICT_CHECK_LT(size_t(next), full.size());
  const auto full_top = std::ranges::max_element(full), other_top = std::ranges::max_element(other);
  double full_sum = 0.0, other_sum = 0.0, weighted = 0.0;
  for (size_t i = 0; i < full.size(); ++i) {
    const double p = std::exp(double(full[i]) - *full_top);
    full_sum += p;
    other_sum += std::exp(double(other[i]) - *other_top);
    weighted += p * (double(full[i]) - other[i]);
  }
  // log p_i = full[i] - full_norm, so that KL = E_p[full - other] - full_norm + other_norm.
  const double full_norm = *full_top + std::log(full_sum);
  const double other_norm = *other_top + std::log(other_sum);
  const double norm_change = other_norm - full_norm;
  return {.kl = weighted / full_sum + norm_change,
          .log_loss_change = double(full[size_t(next)]) - other[size_t(next)] + norm_change,
          .same_top = full_top - full.begin() == other_top - other.begin()};
}

}  // namespace qevict
