#pragma once

#include <cstdint>

namespace qevict {

// Physical cores that this process may run on, at least 1: its affinity mask, hardware threads of
// one core counted once, and no more than the control group's CPU quota rounded up.
uint32_t UsableCores();

}  // namespace qevict
