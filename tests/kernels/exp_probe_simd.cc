#include "kernels/simd/exp.h"
#include "tests/kernels/exp_probe.h"

namespace qevict {

void QEVICT_AT_LEVEL(ExpProbe)(const ExpProbeArgs& args) {
  for (size_t i = 0; i < args.count; i += kFloatLanes) {
    FloatVec x[1] = {LoadFloats(args.x + i)};
    ExpNonPositive(x);
    StoreFloats(x[0], args.x + i);
  }
}

}  // namespace qevict
