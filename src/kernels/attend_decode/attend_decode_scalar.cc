#include <algorithm>
#include <cmath>

#include "kernels/attend_decode/attend_decode.h"
#include "kernels/q8.h"

namespace qevict {

void AttendDecodeScalar(const AttendDecodeArgs& args) {
  const size_t head_dim = args.head_dim;
  ResetState(args.state, args.group, head_dim);
  for (size_t g = 0; g < args.group; ++g) {
    float& m = args.state.m[g];
    float& d = args.state.d[g];
    float* o = args.state.o + g * head_dim;
    float* weights = args.weights == nullptr ? nullptr : args.weights + g * args.weight_stride;
    for (size_t t = args.begin; t < args.end; ++t) {
      float score = 0.0f;
      for (size_t c = 0; c < head_dim; ++c) {
        score += args.q[g * head_dim + c] * KeyAt(args.kv, t, c, head_dim);
      }
      if (score > m) {
        const float rescale = d == 0.0f ? 0.0f : std::exp(m - score);
        d *= rescale;
        for (size_t c = 0; c < head_dim; ++c) o[c] *= rescale;
        m = score;
        for (size_t u = args.begin; weights != nullptr && u < t; ++u) {
          weights[u - args.begin] *= rescale;
        }
      }
      const float p = std::exp(score - m);
      if (weights != nullptr) weights[t - args.begin] = p;
      d += p;
      for (size_t c = 0; c < head_dim; ++c) o[c] += p * ValueAt(args.kv, t, c, head_dim);
    }
  }
}

}  // namespace qevict
