// Layout of the full tier (docs/formats/full-tier.md, docs/formats/full-tier-q8.md): keys and
// values of one (layer, KV head), addressed by slot; elements are f16, or int8 with scales.
//   K: [slots / 16][head_dim][16]   blocks of 16 tokens, transposed: one load serves 16 scores of
//                                   every query row
//
//   V: [slots][head_dim]            row-major: one load serves the accumulators of every query row
//
//   scales, of int8 keys and of int8 values alike: [slots / 16][groups][16] f16, one per token and
//   group of 32 channels; the last group may have 16
//
// f16 arrays are 64-byte aligned, those of int8 at least 32-byte. Keys past the last written token
// are zeros or earlier finite ones up to the end of their block, which a kernel may read whole;
// values there may be anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace qevict {

using F16 = uint16_t;  // IEEE binary16, as bits

inline constexpr size_t kKeyBlockTokens = 16;
inline constexpr size_t kMaxHeadDim = 256;

// Slots of the whole blocks that hold so many tokens.
constexpr size_t WholeKeyBlocks(size_t tokens) {
  return (tokens + kKeyBlockTokens - 1) / kKeyBlockTokens * kKeyBlockTokens;
}

constexpr size_t KeyOffset(size_t slot, size_t channel, size_t head_dim) {
  return (slot / kKeyBlockTokens) * head_dim * kKeyBlockTokens + channel * kKeyBlockTokens +
         slot % kKeyBlockTokens;
}
constexpr size_t ValueOffset(size_t slot, size_t channel, size_t head_dim) {
  return slot * head_dim + channel;
}

inline constexpr size_t kQ8GroupChannels = 32;
constexpr size_t Q8Groups(size_t head_dim) {
  return (head_dim + kQ8GroupChannels - 1) / kQ8GroupChannels;
}
constexpr size_t ScaleOffset(size_t slot, size_t group, size_t head_dim) {
  return ((slot / kKeyBlockTokens) * Q8Groups(head_dim) + group) * kKeyBlockTokens +
         slot % kKeyBlockTokens;
}

// What the full tier's elements are.
enum class KvType : uint8_t { kF16, kQ8 };
constexpr std::string_view KvTypeName(KvType type) { return type == KvType::kF16 ? "f16" : "q8"; }

// Bytes of one token's key, or of its value.
constexpr size_t KvRowBytes(KvType type, size_t head_dim) {
  return type == KvType::kF16 ? sizeof(F16) * head_dim
                              : head_dim + sizeof(F16) * Q8Groups(head_dim);
}

// The examples of docs/formats/full-tier.md and full-tier-q8.md.
static_assert(KeyOffset(0, 1, 64) == 16 && KeyOffset(15, 0, 64) == 15);
static_assert(KeyOffset(17, 3, 64) == 64 * 16 + 3 * 16 + 1);
static_assert(ValueOffset(17, 3, 64) == 17 * 64 + 3);
static_assert(WholeKeyBlocks(0) == 0 && WholeKeyBlocks(16) == 16 && WholeKeyBlocks(17) == 32);
static_assert(Q8Groups(64) == 2 && Q8Groups(80) == 3 && Q8Groups(16) == 1);
static_assert(ScaleOffset(0, 1, 64) == 16 && ScaleOffset(17, 1, 64) == 3 * 16 + 1);
static_assert(KvRowBytes(KvType::kF16, 64) == 128 && KvRowBytes(KvType::kQ8, 64) == 68);
static_assert(KvRowBytes(KvType::kQ8, 80) == 86 && KvRowBytes(KvType::kQ8, 128) == 136);

// int8 keys, or values: channel c of a token is its code times the scale of its group c / 32.
struct Q8View {
  const int8_t* codes = nullptr;
  const F16* scales = nullptr;
};
struct Q8Rows {
  int8_t* codes = nullptr;
  F16* scales = nullptr;
};

// Keys and values of one (layer, KV head), of which each is f16 or int8. Borrowed.
struct KvView {
  const F16* k = nullptr;  // null: keys are those of k8
  const F16* v = nullptr;  // null: values are those of v8
  size_t slots = 0;        // allocated
  Q8View k8 = {}, v8 = {};
};

}  // namespace qevict
