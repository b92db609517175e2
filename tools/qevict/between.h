// A check of a flag's number that does not show in the help.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace qevict::cli {

// In [least, most]. Without a description: the help would append it to the value's name.
inline CLI::Validator Between(uint32_t least, uint32_t most) {
  return CLI::Range(least, most).description("");
}

}  // namespace qevict::cli
