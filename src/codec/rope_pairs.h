// How RoPE turns a key, as far as the codec needs it: pair i of a head's channels, taken as a
// plane, is turned by angle[i] * position. Channels from `dims` on are not turned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace qevict {

struct RopePairs {
  enum class Layout { kInterleaved, kHalves };  // pairs (2 i, 2 i + 1) or (i, i + dims / 2)

  uint32_t head_dim = 0;
  Layout layout = Layout::kInterleaved;
  // [dims / 2], radians per position, scaling of the context included; empty: no RoPE. In double:
  // an f32 angle is off by 0.03 radians at position 1e6.
  std::vector<double> angles;

  size_t pairs() const { return angles.size(); }
  size_t dims() const { return 2 * angles.size(); }  // <= head_dim
  // The two channels of pair i; RoPE turns the first towards the second.
  size_t first(size_t i) const { return layout == Layout::kInterleaved ? 2 * i : i; }
  size_t second(size_t i) const {
    return layout == Layout::kInterleaved ? 2 * i + 1 : i + angles.size();
  }
};

}  // namespace qevict
