// The version of the library that is linked, which may differ from that of the headers.
#pragma once

#include <string_view>

namespace qevict {

std::string_view Version();  // "MAJOR.MINOR.PATCH"; static storage

}  // namespace qevict
