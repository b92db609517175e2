// Masses that windows receive, as integers: their sum does not depend on the order in which threads
// add to it, nor on the chunks in which a prompt passed (as long as none is a single token, which
// other kernels attend).
#pragma once

#include <cstddef>
#include <cstdint>

#include "policy/scoring.h"

namespace qevict {

// Mass in units of 2^-42. A voter has a mass of 1 to give, so that it would take 2^22 of them, all
// intent on one window, to overflow it.
using MassUnits = uint64_t;

constexpr MassUnits ToMassUnits(float mass) {
  return mass > 0.0f ? MassUnits(mass * 0x1p42f + 0.5f) : 0;
}
constexpr float FromMassUnits(MassUnits units) { return float(double(units) * 0x1p-42); }

// Row 0 of masses [group, windows], with `stride` floats from row to row, becomes the group's.
void ReduceGroup(GroupMass kind, size_t group, size_t windows, float* masses, size_t stride);

}  // namespace qevict
