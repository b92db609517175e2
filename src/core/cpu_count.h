// How many threads make sense, and how many are accepted.
#pragma once

#include <cstdint>

namespace qevict {

inline constexpr uint32_t kMostThreads = 256;  // the largest --threads

// Physical cores that this process may run on, at least 1: its affinity mask, hardware threads of
// one core counted once, and no more than the CPU quota of its control groups rounded up.
uint32_t UsableCores();

}  // namespace qevict
