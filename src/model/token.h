#pragma once

#include <cstdint>

namespace qevict {

using Token = int32_t;  // index into the model's vocabulary

}  // namespace qevict
