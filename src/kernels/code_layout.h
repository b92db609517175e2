// Layout of a page of the quantized tier (docs/formats/code-page.md): 64 tokens of one (layer,
// KV head), each key and value a row of small integer codes and one scale byte. A line is 64 bytes;
// within a byte, lower bits come first.
//
//   K, per block of 16 tokens; byte 4 t + j of a line belongs to token t of the block:
//     2-bit line n   bits 2i, 2i + 1   channel 16 n + 4 i + j, i < 4: the code's low two bits
//     1-bit line n   bit i             channel 32 n + 4 i + j, i < 8: the code's third bit
//     4-bit line n   bits 4i .. 4i+3   channel  8 n + 4 i + j, i < 2
//     K2 and K3 have head_dim / 16 2-bit lines; K3 then has ceil(head_dim / 32) 1-bit lines; K4 has
//     head_dim / 8 4-bit lines. One vector after a shift and a mask: 16 tokens x 4 channels.
//   V, after all of K, per group of 32 / bits tokens; byte 4 c + j of line n belongs to channel
//   16 n + c:
//     bits [bits * i, bits * (i + 1))   token 4 i + j of the group
//     head_dim / 16 lines a group. One vector after a shift and a mask: 16 channels x 4 tokens.
//   scales   K [64], V [64], one byte each: 2^((byte - 128) / 32) and 2^((byte - 128) / 16)
//
// Codes of tokens that were never written are zeros, and so are their scale bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qevict {

inline constexpr size_t kCodeLineBytes = 64;
inline constexpr size_t kCodePageTokens = 64;
inline constexpr size_t kCodeBlockTokens = 16;  // of K
inline constexpr int kKeyScaleSteps = 32;       // per octave
inline constexpr int kValueScaleSteps = 16;

struct CodeFormat {
  uint32_t head_dim = 0;                  // a multiple of 16
  uint32_t key_bits = 3, value_bits = 2;  // 2, 3, 4 and 1, 2, 4

  friend constexpr bool operator==(const CodeFormat&, const CodeFormat&) = default;

  constexpr size_t key_lines() const {  // of one block of 16 tokens
    const size_t two_bit = head_dim / 16;
    return key_bits == 4 ? head_dim / 8 : key_bits == 3 ? two_bit + (head_dim + 31) / 32 : two_bit;
  }
  constexpr size_t value_group_tokens() const { return 32 / value_bits; }  // 32, 16, 8
  constexpr size_t key_block_bytes() const { return key_lines() * kCodeLineBytes; }
  constexpr size_t value_group_bytes() const { return head_dim / 16 * kCodeLineBytes; }
  constexpr size_t keys_bytes() const {
    return kCodePageTokens / kCodeBlockTokens * key_block_bytes();
  }
  constexpr size_t values_bytes() const {
    return kCodePageTokens / value_group_tokens() * value_group_bytes();
  }
  constexpr size_t key_scales_offset() const { return keys_bytes() + values_bytes(); }
  constexpr size_t value_scales_offset() const { return key_scales_offset() + kCodePageTokens; }
  constexpr size_t page_bytes() const { return value_scales_offset() + kCodePageTokens; }
};

static_assert(CodeFormat{64, 3, 2}.page_bytes() == 64 * (64 * 5 / 8 + 2));
static_assert(CodeFormat{128, 2, 1}.page_bytes() == 64 * (128 * 3 / 8 + 2));
static_assert(CodeFormat{256, 4, 4}.page_bytes() == 64 * (256 * 8 / 8 + 2));

// Levels of the scalar code, Lloyd-Max for a Gaussian of unit variance, in small integers so that a
// byte product can use them: level = table[code] * unit. Symmetric, ascending; the kernels' key
// side uses table[code] + offset, which is not negative.
struct CodeLevels {
  int8_t table[16];
  float unit;  // of a Gaussian's standard deviation
  int offset;  // -table[0]
};
// bits 1 .. 4.
const CodeLevels& LevelsOf(uint32_t bits);

}  // namespace qevict
