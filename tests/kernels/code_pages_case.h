// Pages of random codes for the tests of the quantized tier's kernels, built from the layout's
// description (kernels/code_layout.h) and nothing else, and kept beside them as plain numbers.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "core/aligned_buffer.h"
#include "kernels/code_layout.h"

namespace qevict {

class CodePagesCase {
 public:
  CodePagesCase(CodeFormat format, size_t tokens, uint32_t seed)
      : format_(format),
        tokens_(tokens),
        key_codes_(tokens * format.head_dim),
        value_codes_(tokens * format.head_dim),
        key_scales_(tokens),
        value_scales_(tokens) {
    const size_t pages = (tokens + kCodePageTokens - 1) / kCodePageTokens;
    memory_ = AlignedBuffer::Allocate(pages * format.page_bytes()).value();
    for (size_t i = 0; i < pages; ++i) {
      pages_.push_back(memory_.as<uint8_t>() + i * format.page_bytes());
    }
    std::mt19937 rng(seed);
    for (size_t t = 0; t < tokens; ++t) {
      // Around one, within a factor of about four.
      SetScales(t, uint8_t(96 + rng() % 64), uint8_t(112 + rng() % 32));
      for (size_t c = 0; c < format.head_dim; ++c) {
        SetKeyCode(t, c, uint32_t(rng()) % (1u << format.key_bits));
        SetValueCode(t, c, uint32_t(rng()) % (1u << format.value_bits));
      }
    }
  }

  void SetKeyCode(size_t t, size_t c, uint32_t code) {
    key_codes_[t * format_.head_dim + c] = uint8_t(code);
    // A block of 16 tokens: byte 4 (t % 16) + c % 4 of a line.
    const size_t block = (t % 64 / 16) * format_.key_lines() * 64, byte = 4 * (t % 16) + c % 4;
    uint8_t* page = pages_[t / 64];
    if (format_.key_bits == 4) {
      SetBits(page[block + c / 8 * 64 + byte], 4 * (c % 8 / 4), 4, code);
      return;
    }
    SetBits(page[block + c / 16 * 64 + byte], 2 * (c % 16 / 4), 2, code & 3);
    if (format_.key_bits == 3) {
      SetBits(page[block + (format_.head_dim / 16 + c / 32) * 64 + byte], c % 32 / 4, 1, code >> 2);
    }
  }
  void SetValueCode(size_t t, size_t c, uint32_t code) {
    value_codes_[t * format_.head_dim + c] = uint8_t(code);
    const size_t bits = format_.value_bits, group_tokens = 32 / bits;
    const size_t in_page = t % 64, in_group = in_page % group_tokens;
    const size_t line = in_page / group_tokens * (format_.head_dim / 16) + c / 16;
    SetBits(pages_[t / 64][4 * format_.key_lines() * 64 + line * 64 + 4 * (c % 16) + in_group % 4],
            bits * (in_group / 4), bits, code);
  }
  void SetScales(size_t t, uint8_t key, uint8_t value) {
    key_scales_[t] = key;
    value_scales_[t] = value;
    uint8_t* scales = pages_[t / 64] + format_.page_bytes() - 128;
    scales[t % 64] = key;
    scales[64 + t % 64] = value;
  }

  double Key(size_t t, size_t c) const {
    const CodeLevels& levels = LevelsOf(format_.key_bits);
    return levels.table[key_codes_[t * format_.head_dim + c]] * double(levels.unit) * KeyScale(t);
  }
  double Value(size_t t, size_t c) const {
    const CodeLevels& levels = LevelsOf(format_.value_bits);
    return levels.table[value_codes_[t * format_.head_dim + c]] * double(levels.unit) *
           ValueScale(t);
  }
  double KeyScale(size_t t) const { return std::exp2((key_scales_[t] - 128) / 32.0); }
  double ValueScale(size_t t) const { return std::exp2((value_scales_[t] - 128) / 16.0); }

  const CodeFormat& format() const { return format_; }
  size_t tokens() const { return tokens_; }
  const uint8_t* const* pages() const { return pages_.data(); }

 private:
  static void SetBits(uint8_t& byte, size_t shift, size_t bits, uint32_t value) {
    const uint32_t mask = ((1u << bits) - 1) << shift;
    byte = uint8_t((byte & ~mask) | value << shift);
  }

  CodeFormat format_;
  size_t tokens_;
  std::vector<uint8_t> key_codes_, value_codes_;  // [tokens, head_dim]
  std::vector<uint8_t> key_scales_, value_scales_;
  AlignedBuffer memory_;
  std::vector<uint8_t*> pages_;
};

}  // namespace qevict
