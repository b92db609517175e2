// How one head's keys are cut into the items of a decode step. They depend on the numbers of
// tokens alone, so results are the same for any number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace qevict {

// Full keys per item. Long enough that the first tile of an item, which nothing prefetched, does
// not count; short enough that a dozen threads find work at 8K.
inline uint32_t DecodeSplitTokens(uint32_t visible_tokens) {
  return std::clamp<uint32_t>((visible_tokens / 16 + 511) / 512 * 512, 512, 2048);
}

// Codes per item, in tokens: turning queries into code space and sums back counts once an item.
inline uint32_t CodeSplitTokens(uint32_t tokens) {
  return std::clamp<uint32_t>((tokens / 8 + 1023) / 1024 * 1024, 1024, 4096);
}

}  // namespace qevict
