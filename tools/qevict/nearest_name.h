// "did you mean" for flags, commands and model names.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace qevict::cli {

// The candidate with the fewest edits (insert, remove, replace, swap of neighbours) from `name`;
// the first one of several. Empty when even that one is too far away to be what was meant.
std::string NearestName(std::string_view name, std::span<const std::string> candidates);

}  // namespace qevict::cli
