// Formatted text on standard output and standard error. fmt::print throws when a stream refuses its
// bytes, and a closed or full standard error must not end the program.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace qevict::cli {

// What `stream` refuses is lost and leaves its error flag set; CommandLine::Run looks at that of
// standard output before the program ends.
template <typename... Args>
void Print(std::FILE* stream, fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fwrite(text.data(), 1, text.size(), stream);
}

}  // namespace qevict::cli
