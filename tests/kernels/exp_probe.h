// Reaches ExpNonPositive, which is internal to the objects of a SIMD level, from a test.
#pragma once

#include <cstddef>

#include "kernels/kernel_variant.h"

namespace qevict {

struct ExpProbeArgs {
  float* x;      // in and out
  size_t count;  // a multiple of 16
};
using ExpProbeFn = void (*)(const ExpProbeArgs&);

}  // namespace qevict
