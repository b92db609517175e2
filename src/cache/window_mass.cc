#include "cache/window_mass.h"

#include <algorithm>

namespace qevict {

void ReduceGroup(GroupMass kind, size_t group, size_t windows, float* masses, size_t stride) {
  for (size_t r = 1; r < group; ++r) {
    const float* row = masses + r * stride;
    if (kind == GroupMass::kMax) {
      for (size_t w = 0; w < windows; ++w) masses[w] = std::max(masses[w], row[w]);
    } else {
      for (size_t w = 0; w < windows; ++w) masses[w] += row[w];
    }
  }
  if (kind == GroupMass::kMax) return;
  for (size_t w = 0; w < windows; ++w) masses[w] /= float(group);
}

}  // namespace qevict
