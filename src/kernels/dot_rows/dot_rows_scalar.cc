#include "kernels/dot_rows/dot_rows.h"

namespace qevict {

void DotRowsScalar(const DotRowsArgs& args) {
  for (size_t r = 0; r < args.rows; ++r) {
    for (size_t b = 0; b < args.columns; ++b) {
      float sum = 0.0f;
      for (size_t c = 0; c < args.depth; ++c) sum += args.a[r * args.depth + c] * args.b[b][c];
      args.out[r * args.out_stride + b] = sum;
    }
  }
}

}  // namespace qevict
