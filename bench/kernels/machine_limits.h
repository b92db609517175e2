// What this machine can do at best, measured: the two roofs under which every kernel works.
#pragma once

#include <cstddef>

#include "core/isa.h"

namespace qevict {

struct MachineLimits {
  double read_bytes_per_s;  // all threads together, 512 MiB that no cache holds
  double f32_flops;         // all threads together, FMA counted as two
};

// Takes about two seconds. The scalar level has no limits of its own: it reports those of the
// fastest level.
MachineLimits MeasureMachine(Isa isa, size_t threads);

// Adds the limits to the report's header and returns them.
MachineLimits ReportMachine(Isa isa, size_t threads);

}  // namespace qevict
