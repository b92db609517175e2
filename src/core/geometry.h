// Where tokens stand: sinks, history windows, local zone, open window. Arithmetic on token counts.
//
//   position   0 ...... sinks | sinks + i * omega ...                      | size
//              sinks          | window 0 | window 1 | ... | window w - 1 | open
//                             | history ............ | local zone ............ |
//
// Window i holds positions [sinks + i * omega, sinks + (i + 1) * omega). The local zone holds the
// newest `local` tokens rounded up to whole windows, and the open window, which is still growing.
// What lies between sinks and local zone is the history.
#pragma once

#include <algorithm>
#include <cstdint>

#include "qevict/ids.h"
#include "qevict/status.h"

namespace qevict {

enum class Zone { kSink, kHistory, kLocal };

struct Geometry {
  uint32_t omega = 8;   // tokens per window, 1 .. 64
  uint32_t sinks = 4;   // tokens, 0 .. 1024
  uint32_t local = 64;  // tokens, >= 1

  // Error kInvalidArgument, naming the flag.
  Status Validate() const;

  constexpr uint32_t sink_tokens(uint32_t size) const { return std::min(size, sinks); }
  // Windows that are complete in a sequence of `size` tokens.
  constexpr uint32_t complete_windows(uint32_t size) const {
    return size <= sinks ? 0 : (size - sinks) / omega;
  }
  constexpr uint32_t open_tokens(uint32_t size) const {
    return size <= sinks ? 0 : (size - sinks) % omega;
  }
  constexpr uint32_t local_windows(uint32_t size) const {
    return std::min(complete_windows(size), (local + omega - 1) / omega);
  }
  constexpr uint32_t history_windows(uint32_t size) const {
    return complete_windows(size) - local_windows(size);
  }
  // Tokens that routing must not touch besides the sinks.
  constexpr uint32_t local_tokens(uint32_t size) const {
    return local_windows(size) * omega + open_tokens(size);
  }

  constexpr Position first_position(WindowId window) const {
    return Position(sinks + window.value * omega);
  }
  // Precondition: position >= sinks.
  constexpr WindowId window_of(Position position) const {
    return WindowId((position.value - sinks) / omega);
  }
  constexpr Zone zone_of(Position position, uint32_t size) const {
    if (position.value < sinks) return Zone::kSink;
    return window_of(position).value < history_windows(size) ? Zone::kHistory : Zone::kLocal;
  }
};

}  // namespace qevict
