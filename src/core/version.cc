#include "qevict/version.h"

namespace qevict {

std::string_view Version() { return QEVICT_VERSION; }

}  // namespace qevict
