// Where allocations that throw become errors.
#pragma once

#include <new>
#include <string>
#include <string_view>

#include "qevict/status.h"

namespace qevict {

// What `body`, which returns a Status or Result, returns; or, where it throws std::bad_alloc, the
// error kOutOfMemory with `message`.
template <typename Body>
auto OrOutOfMemory(std::string_view message, const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Fail(ErrorCode::kOutOfMemory, std::string(message));
  }
}

}  // namespace qevict
