// Ids are types: a RoPE position, a window, a layer and a KV head are different things, and the
// compiler keeps them apart. Places in storage, slots and cells, are plain numbers: they are
// counted with.
#pragma once

#include <compare>
#include <cstdint>

namespace qevict {

template <typename Tag>
struct Id {
  uint32_t value = 0;
  constexpr Id() = default;
  constexpr explicit Id(uint32_t v) : value(v) {}
  friend constexpr auto operator<=>(Id, Id) = default;
};

using Position = Id<struct PositionTag>;  // RoPE position of a token: 0-based, never changes
using WindowId = Id<struct WindowTag>;    // window number within one (layer, KV head)
using LayerId = Id<struct LayerTag>;
using KvHeadId = Id<struct KvHeadTag>;

}  // namespace qevict
