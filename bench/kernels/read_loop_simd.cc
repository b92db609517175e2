// Reads memory as fast as it comes; compiled once per SIMD level.
#include "kernels/simd/level.h"

namespace qevict {

// Returns a value that depends on every vector of [from, from + count), so that no load can be left
// out. count is a multiple of 128.
float QEVICT_AT_LEVEL(ReadLoop)(const float* from, size_t count) {
  const hn::RebindToUnsigned<FloatTag> du;
  const auto* words = reinterpret_cast<const uint32_t*>(from);
  constexpr size_t kStreams = 8;
  hn::Vec<decltype(du)> seen[kStreams];
  for (auto& s : seen) s = hn::Zero(du);
  for (size_t i = 0; i < count; i += kStreams * kFloatLanes) {
#pragma GCC unroll 8
    for (size_t s = 0; s < kStreams; ++s) {
      seen[s] = hn::Or(seen[s], hn::LoadU(du, words + i + s * kFloatLanes));
    }
  }
  for (size_t s = 1; s < kStreams; ++s) seen[0] = hn::Or(seen[0], seen[s]);
  return float(hn::GetLane(seen[0]));
}

}  // namespace qevict
