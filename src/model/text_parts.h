// Cuts text where libllama's splitting of it into words would otherwise end the process.
#pragma once

#include <cstddef>
#include <string_view>

namespace qevict {

// libllama splits text for many BPE vocabularies with std::regex, which recurses once per character
// of a match: a run of 25,000 letters, or of blanks, overflows a stack of 8 MiB. No word is nearly
// as long, so longer runs are cut at this length, which costs at most one odd token per cut.
constexpr size_t kLongestRunBytes = 4096;

// The end of the part of `text` (valid UTF-8) that begins at `begin` and holds no run of letters
// and digits, of white space, or of other characters that is longer than kLongestRunBytes.
// text.size() for all ordinary text.
size_t PartEnd(std::string_view text, size_t begin);

}  // namespace qevict
