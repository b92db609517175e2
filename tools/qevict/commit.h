// The commit that this program was built from; commit.cmake writes it at every build.
#pragma once

#include <string_view>

namespace qevict::cli {

// "0123abcd4567", with "-dirty" for local changes; "unknown" without git.
std::string_view BuildCommit();

}  // namespace qevict::cli
