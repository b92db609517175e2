// The min/max code of published window caches (KIVI, QEvict), for comparison with our own; no
// kernel reads it. A window of omega tokens (docs/formats/minmax-window.md): keys share a grid per
// channel within the window, values one per token:
//   x^ = zero + scale * code,   zero = min, scale = (max - min) / (2^bits - 1)
// Both are f16, zero rounded down and scale up, so that the grid covers what it codes: finite x
// within f16's range decode within scale / 2. Larger ones count as +-65504, a NaN as the grid's
// zero.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qevict {

struct MinMaxFormat {
  uint32_t head_dim = 0;  // a multiple of 16
  uint32_t omega = 8;     // tokens per window
  uint32_t bits = 2;      // 2, 4, 8; of keys and values

  // Codes of K or of V.
  constexpr size_t code_bytes() const { return size_t{head_dim} * omega * bits / 8; }
  // Zero and scale of each channel of K and each token of V.
  constexpr size_t grid_bytes() const { return (size_t{head_dim} + omega) * 4; }
  constexpr size_t window_bytes() const { return 2 * code_bytes() + grid_bytes(); }
  // Mean of keys and values, grids counted.
  constexpr double bits_per_element() const {
    return 8.0 * double(window_bytes()) / (2.0 * head_dim * omega);
  }
};

// QEvict's: keys 6 bits, values 2.5.
static_assert(MinMaxFormat{64, 8, 2}.bits_per_element() == 4.25);
static_assert(MinMaxFormat{128, 8, 2}.bits_per_element() == 4.125);
static_assert(MinMaxFormat{64, 32, 4}.bits_per_element() == 4.75);

// [omega, head_dim] rows without gaps.
struct WindowRows {
  const float* keys;
  const float* values;
};

// bytes[format.window_bytes()]
void EncodeMinMaxWindow(MinMaxFormat format, WindowRows rows, uint8_t* bytes);
// keys, values: [omega, head_dim]
void DecodeMinMaxWindow(MinMaxFormat format, const uint8_t* bytes, float* keys, float* values);

}  // namespace qevict
