// How long work is told to stop.
#pragma once

#include <functional>

namespace qevict {

// Asked often during long work, from any of the engine's threads; true ends it with kCancelled.
using CancelFn = std::function<bool()>;

}  // namespace qevict
