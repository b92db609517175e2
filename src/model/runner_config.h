// Who computes a model, and with how many threads.
#pragma once

#include <cstdint>

#include "core/isa.h"
#include "model/products.h"

namespace qevict {

struct RunnerConfig {
  uint32_t threads = 1;
  Isa isa = Isa::kScalar;  // of our own kernels
  Products products = Products::kFastest;
};

}  // namespace qevict
