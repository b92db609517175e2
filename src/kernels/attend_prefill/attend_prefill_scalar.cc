#include <algorithm>
#include <cmath>

#include "kernels/attend_prefill/attend_prefill.h"
#include "kernels/q8.h"

namespace qevict {

void AttendPrefillScalar(const AttendPrefillArgs& args) {
  const size_t head_dim = args.head_dim;
  for (size_t r = 0; r < args.rows; ++r) {
    float& m = args.state.m[r];
    float& d = args.state.d[r];
    float* o = args.state.o + r * head_dim;
    const size_t end = std::min<size_t>(args.end, args.row_end[r]);
    for (size_t t = std::max<size_t>(args.begin, args.row_begin[r]); t < end; ++t) {
      float score = 0.0f;
      for (size_t c = 0; c < head_dim; ++c) {
        score += args.q[r * head_dim + c] * KeyAt(args.kv, t, c, head_dim);
      }
      if (score > m) {
        const float rescale = d == 0.0f ? 0.0f : std::exp(m - score);
        d *= rescale;
        for (size_t c = 0; c < head_dim; ++c) o[c] *= rescale;
        m = score;
      }
      const float p = std::exp(score - m);
      d += p;
      for (size_t c = 0; c < head_dim; ++c) o[c] += p * ValueAt(args.kv, t, c, head_dim);
    }
  }
}

}  // namespace qevict
