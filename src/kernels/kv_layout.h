// Layout of the full tier (docs/formats/full-tier.md): f16 keys and values of one (layer, KV head),
// addressed by slot.
//   K: [slots / 16][head_dim][16]   blocks of 16 tokens, transposed: one load serves 16 scores of
//                                   every query row
//
//   V: [slots][head_dim]            row-major: one load serves the accumulators of every query row
//
// Both are 64-byte aligned. Slots past the last written token hold zeros, so a kernel may read a
// whole block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qevict {

using F16 = uint16_t;  // IEEE binary16, as bits

inline constexpr size_t kKeyBlockTokens = 16;

constexpr size_t KeyOffset(size_t slot, size_t channel, size_t head_dim) {
  return (slot / kKeyBlockTokens) * head_dim * kKeyBlockTokens + channel * kKeyBlockTokens +
         slot % kKeyBlockTokens;
}
constexpr size_t ValueOffset(size_t slot, size_t channel, size_t head_dim) {
  return slot * head_dim + channel;
}

// The examples of docs/formats/full-tier.md.
static_assert(KeyOffset(0, 1, 64) == 16 && KeyOffset(15, 0, 64) == 15);
static_assert(KeyOffset(17, 3, 64) == 64 * 16 + 3 * 16 + 1);
static_assert(ValueOffset(17, 3, 64) == 17 * 64 + 3);

// Keys and values of one (layer, KV head). Borrowed.
struct KvView {
  const F16* k = nullptr;
  const F16* v = nullptr;
  size_t slots = 0;  // written slots
};

}  // namespace qevict
