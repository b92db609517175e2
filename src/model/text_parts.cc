#include "model/text_parts.h"

#include <algorithm>
#include <cstdint>

namespace qevict {
namespace {

enum class CharClass { kWord, kSpace, kOther, kUnsure };

struct Range {
  char32_t first, last;
  CharClass char_class;
};
// Beyond ASCII, only what is certain: the letters and marks that real texts are full of. All other
// characters may belong to any class and therefore end no run.
constexpr Range kCertain[] = {
    {0xC0, 0xD6, CharClass::kWord},      {0xD8, 0xF6, CharClass::kWord},
    {0xF8, 0x24F, CharClass::kWord},     {0x391, 0x3A1, CharClass::kWord},
    {0x3A3, 0x3C9, CharClass::kWord},    {0x410, 0x44F, CharClass::kWord},
    {0x5D0, 0x5EA, CharClass::kWord},    {0x621, 0x64A, CharClass::kWord},
    {0x904, 0x939, CharClass::kWord},    {0xE01, 0xE30, CharClass::kWord},
    {0x2018, 0x201D, CharClass::kOther}, {0x3001, 0x3002, CharClass::kOther},
    {0x3041, 0x3096, CharClass::kWord},  {0x30A1, 0x30FA, CharClass::kWord},
    {0x4E00, 0x9FA5, CharClass::kWord},  {0xAC00, 0xD7A3, CharClass::kWord},
    {0xFF01, 0xFF01, CharClass::kOther}, {0xFF0C, 0xFF0C, CharClass::kOther},
    {0xFF1A, 0xFF1B, CharClass::kOther}, {0xFF1F, 0xFF1F, CharClass::kOther},
};

CharClass ClassOf(char32_t c) {
  if (c < 0x80) {
    if ((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')) return CharClass::kWord;
    return c == ' ' || (c >= '\t' && c <= '\r') ? CharClass::kSpace : CharClass::kOther;
  }
  const Range* range = std::ranges::lower_bound(kCertain, c, {}, &Range::last);
  const bool found = range != std::end(kCertain) && c >= range->first;
  return found ? range->char_class : CharClass::kUnsure;
}

struct Char {
  char32_t code_point;
  size_t bytes;
};
Char CharAt(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return char32_t(uint8_t(text[at + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0xF) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {0x10000, 4};  // ours are all below: unsure
}

}  // namespace

size_t PartEnd(std::string_view text, size_t begin) {
  CharClass run_class = CharClass::kUnsure;
  size_t run_begin = begin;
  for (size_t at = begin; at < text.size();) {
    const Char c = CharAt(text, at);
    const CharClass char_class = ClassOf(c.code_point);
    if (char_class != run_class && char_class != CharClass::kUnsure) {
      if (run_class != CharClass::kUnsure) run_begin = at;
      run_class = char_class;
    }
    if (at - run_begin >= kLongestRunBytes) return at;
    at += c.bytes;
  }
  return text.size();
}

}  // namespace qevict
