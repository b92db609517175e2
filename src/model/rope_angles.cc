#include "model/rope_angles.h"

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace qevict {
namespace {

// The pair at which a frequency makes `turns` turns over the original context (Peng et al., YaRN,
// section 3.2).
double PairOfTurns(const Hyperparameters& h, double turns) {
  return h.rope_dims *
         std::log(h.rope_scaling.original_context / (turns * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(double(h.rope_base)));
}

}  // namespace

std::vector<double> RopeAngles(const GgufFile& file, const Hyperparameters& h) {
  std::vector<double> angles(h.rope_dims / 2);
  for (size_t i = 0; i < angles.size(); ++i) {
    angles[i] = std::pow(double(h.rope_base), -2.0 * double(i) / double(h.rope_dims));
  }
  if (const ggml_tensor* factors = file.FindTensor("rope_freqs.weight")) {
    std::vector<float> values(angles.size());
    std::memcpy(values.data(), file.TensorBytes(factors), values.size() * sizeof(float));
    for (size_t i = 0; i < angles.size(); ++i) angles[i] /= double(values[i]);
  }
  const RopeScaling& scaling = h.rope_scaling;
  if (scaling.kind == RopeScaling::Kind::kNone) return angles;
  const bool yarn = scaling.kind == RopeScaling::Kind::kYarn;
  const double extrapolation =
      scaling.yarn_ext_factor >= 0.0f ? double(scaling.yarn_ext_factor) : (yarn ? 1.0 : 0.0);
  const double low = std::max(0.0, std::floor(PairOfTurns(h, scaling.yarn_beta_fast)));
  const double high =
      std::min(double(h.rope_dims) - 1.0, std::ceil(PairOfTurns(h, scaling.yarn_beta_slow)));
  for (size_t i = 0; i < angles.size(); ++i) {
    const double ramp = std::clamp((double(i) - low) / std::max(0.001, high - low), 0.0, 1.0);
    const double kept = extrapolation == 0.0 ? 0.0 : (1.0 - ramp) * extrapolation;
    angles[i] *= (1.0 - kept) / double(scaling.factor) + kept;
  }
  return angles;
}

}  // namespace qevict
