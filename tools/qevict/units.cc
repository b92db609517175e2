#include "tools/qevict/units.h"

#include <fmt/format.h>

#include <array>

namespace qevict::cli {
namespace {

std::string Scaled(uint64_t value, double step, const std::array<const char*, 5>& units) {
  double scaled = double(value);
  size_t unit = 0;
  while (scaled >= step && unit + 1 < units.size()) {
    scaled /= step;
    ++unit;
  }
  return unit == 0 ? fmt::format("{}{}", value, units[0])
                   : fmt::format("{:.1f}{}", scaled, units[unit]);
}

}  // namespace

std::string FormatBytes(uint64_t bytes) {
  return Scaled(bytes, 1024.0, {" B", " KiB", " MiB", " GiB", " TiB"});
}

std::string FormatCount(uint64_t count) {
  return Scaled(count, 1000.0, {"", " k", " M", " G", " T"});
}

std::string FormatTokens(uint64_t tokens) {
  std::string digits = fmt::format("{}", tokens);
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

}  // namespace qevict::cli
