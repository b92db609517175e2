// All SIMD levels of DotRows; compiled once per level.
#include "kernels/dot_rows/dot_rows.h"
#include "kernels/simd/level.h"

namespace qevict {

void QEVICT_AT_LEVEL(DotRows)(const DotRowsArgs& args) {
  const FloatTag tag;
  for (size_t r = 0; r < args.rows; ++r) {
    const float* a = args.a + r * args.depth;
    for (size_t b = 0; b < args.columns; ++b) {
      FloatVec sum = hn::Zero(tag);
      for (size_t c = 0; c < args.depth; c += kFloatLanes) {
        sum = hn::MulAdd(LoadFloats(a + c), LoadFloats(args.b[b] + c), sum);
      }
      args.out[r * args.out_stride + b] = hn::GetLane(hn::SumOfLanes(tag, sum));
    }
  }
}

}  // namespace qevict
