// The lint gate must find this through the header filter.
#pragma once

namespace qevict {

inline int BadlyNamedParameter(int   NotSnakeCase) { return NotSnakeCase; }

}  // namespace qevict
