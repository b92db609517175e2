// Working room that is kept from call to call: it grows, and never shrinks.
#pragma once

#include <cstddef>
#include <vector>

namespace qevict {

// At least `size` elements. Throws std::bad_alloc.
template <typename T>
void GrowRoom(std::vector<T>& room, size_t size) {
  if (room.size() < size) room.resize(size);
}

}  // namespace qevict
