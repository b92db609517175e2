// How long work is told to stop.
#pragma once

#include <functional>

namespace qevict {

// Asked often during long work; true ends it with kCancelled. May be called from any of the
// engine's threads.
using CancelFn = std::function<bool()>;

}  // namespace qevict
