#include "core/utf8.h"

#include <cstdint>
#include <cstring>

namespace qevict {
namespace {

enum class CharState { kValid, kIncomplete, kInvalid };
// kValid: `bytes` are a character. kIncomplete: the text ends inside one. kInvalid: `bytes` (>= 1)
// can never become one.
struct CharScan {
  CharState state;
  size_t bytes;
};

struct LeadByte {
  size_t char_bytes;             // 0: no character begins with this byte
  uint8_t second_lo, second_hi;  // narrower than 80..BF where overlong forms and surrogates lurk
};

LeadByte Classify(uint8_t lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead < 0xF0) {
    return {3, uint8_t(lead == 0xE0 ? 0xA0 : 0x80), uint8_t(lead == 0xED ? 0x9F : 0xBF)};
  }
  if (lead < 0xF5) {
    return {4, uint8_t(lead == 0xF0 ? 0x90 : 0x80), uint8_t(lead == 0xF4 ? 0x8F : 0xBF)};
  }
  return {0, 0, 0};
}

CharScan ScanChar(std::string_view text) {
  const LeadByte lead = Classify(uint8_t(text[0]));
  if (lead.char_bytes == 0) return {CharState::kInvalid, 1};
  for (size_t i = 1; i < lead.char_bytes; ++i) {
    if (i == text.size()) return {CharState::kIncomplete, i};
    const uint8_t byte = uint8_t(text[i]);
    const uint8_t lo = i == 1 ? lead.second_lo : 0x80;
    const uint8_t hi = i == 1 ? lead.second_hi : 0xBF;
    if (byte < lo || byte > hi) return {CharState::kInvalid, i};
  }
  return {CharState::kValid, lead.char_bytes};
}

// Documents are mostly ASCII: eight bytes at a time.
size_t SkipAscii(std::string_view text, size_t from) {
  for (; from + 8 <= text.size(); from += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + from, 8);
    if (word & 0x8080808080808080ull) break;
  }
  while (from < text.size() && uint8_t(text[from]) < 0x80) ++from;
  return from;
}

}  // namespace

std::optional<size_t> FirstInvalidUtf8(std::string_view text) {
  for (size_t at = SkipAscii(text, 0); at < text.size(); at = SkipAscii(text, at)) {
    const CharScan scan = ScanChar(text.substr(at));
    if (scan.state != CharState::kValid) return at;
    at += scan.bytes;
  }
  return std::nullopt;
}

size_t IncompleteUtf8Tail(std::string_view text) {
  const size_t longest = text.size() < 3 ? text.size() : 3;
  for (size_t bytes = 1; bytes <= longest; ++bytes) {
    const std::string_view tail = text.substr(text.size() - bytes);
    const CharScan scan = ScanChar(tail);
    if (scan.state == CharState::kIncomplete && scan.bytes == bytes) return bytes;
  }
  return 0;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CharScan scan = ScanChar(text.substr(at));
    out += scan.state == CharState::kValid ? text.substr(at, scan.bytes) : "\xEF\xBF\xBD";
    at += scan.bytes;
  }
  return out;
}

}  // namespace qevict
