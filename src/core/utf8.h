// UTF-8 as the Unicode standard defines it: no overlong form, no surrogate, nothing above U+10FFFF.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace qevict {

// Offset of the first byte that belongs to no valid character; nullopt: the whole text is valid.
std::optional<size_t> FirstInvalidUtf8(std::string_view text);

// How many bytes at the end (0 .. 3) begin a character that further bytes could complete.
size_t IncompleteUtf8Tail(std::string_view text);

// U+FFFD for every byte sequence that is not a character (one per longest valid beginning, as the
// standard recommends), an incomplete character at the end included.
std::string ReplaceInvalidUtf8(std::string_view text);

}  // namespace qevict
