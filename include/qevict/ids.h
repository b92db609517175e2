// Ids are types: a RoPE position, a physical place and a window are three different things, and the
// compiler keeps them apart.
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
using Slot = Id<struct SlotTag>;          // place of a token in the storage of one (layer, KV head)
using WindowId = Id<struct WindowTag>;    // window number within one (layer, KV head)
using LayerId = Id<struct LayerTag>;
using KvHeadId = Id<struct KvHeadTag>;

}  // namespace qevict
