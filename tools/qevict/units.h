// Numbers as a person reads them. JSON always carries plain numbers.
#pragma once

#include <cstdint>
#include <string>

namespace qevict::cli {

std::string FormatBytes(uint64_t bytes);    // "93.8 MiB"
std::string FormatCount(uint64_t count);    // "134.5 M"
std::string FormatTokens(uint64_t tokens);  // "32,768"

}  // namespace qevict::cli
