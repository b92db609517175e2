#include "codec/minmax.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "kernels/f16.h"

namespace qevict {

namespace {

constexpr float kLargest = 65504.0f;

// A row of elements that share a grid.
struct Run {
  const float* base;
  size_t count, stride;
};

struct Grid {
  F16 zero, scale;
};

F16 RoundDown(float value) {
  const F16 nearest = F32ToF16(value);
  if (F16ToF32(nearest) <= value) return nearest;
  if (nearest == 0) return 0x8001;
  return F16(nearest & 0x8000 ? nearest + 1 : nearest - 1);
}

F16 RoundUp(double value) {  // >= 0
  const F16 nearest = F32ToF16(float(value));
  return F16ToF32(nearest) < value ? F16(nearest + 1) : nearest;
}

Grid GridOf(Run run, uint32_t bits) {
  float low = kLargest, high = -kLargest;
  for (size_t i = 0; i < run.count; ++i) {
    const float x = run.base[i * run.stride];
    if (x < low) low = std::max(x, -kLargest);
    if (x > high) high = std::min(x, kLargest);
  }
  if (low > high) low = high = 0;  // nothing but NaN
  const F16 zero = RoundDown(low);
  const double range = double(high) - F16ToF32(zero);
  return {zero, RoundUp(range / ((1u << bits) - 1))};
}

uint32_t CodeOf(float x, Grid grid, uint32_t bits) {
  const float scale = F16ToF32(grid.scale);
  const float steps = scale > 0 ? std::round((x - F16ToF32(grid.zero)) / scale) : 0.0f;
  const float last = float((1u << bits) - 1);
  return steps > 0 ? uint32_t(std::min(steps, last)) : 0;  // a NaN too
}

void StoreF16(uint8_t* at, F16 value) {
  at[0] = uint8_t(value);
  at[1] = uint8_t(value >> 8);
}

F16 LoadF16(const uint8_t* at) { return F16(at[0] | at[1] << 8); }

// Offsets of one side's parts in a window.
struct Side {
  size_t codes, grids;  // grid i: zero, scale
  size_t runs, count;   // elements per run
  size_t run_stride, element_stride;
};

Side KeySide(MinMaxFormat format) {
  return {0, 2 * format.code_bytes(), format.head_dim, format.omega, 1, format.head_dim};
}

Side ValueSide(MinMaxFormat format) {
  return {format.code_bytes(), 2 * format.code_bytes() + size_t{format.head_dim} * 4,
          format.omega,        format.head_dim,
          format.head_dim,     1};
}

void EncodeSide(const Side& side, uint32_t bits, const float* rows, uint8_t* bytes) {
  std::fill_n(bytes + side.codes, side.runs * side.count * bits / 8, uint8_t{0});
  for (size_t r = 0; r < side.runs; ++r) {
    const Run run = {rows + r * side.run_stride, side.count, side.element_stride};
    const Grid grid = GridOf(run, bits);
    StoreF16(bytes + side.grids + r * 4, grid.zero);
    StoreF16(bytes + side.grids + r * 4 + 2, grid.scale);
    for (size_t i = 0; i < run.count; ++i) {
      const size_t bit = (r * side.count + i) * bits;
      bytes[side.codes + bit / 8] |=
          uint8_t(CodeOf(run.base[i * run.stride], grid, bits) << bit % 8);
    }
  }
}

void DecodeSide(const Side& side, uint32_t bits, const uint8_t* bytes, float* rows) {
  for (size_t r = 0; r < side.runs; ++r) {
    const float zero = F16ToF32(LoadF16(bytes + side.grids + r * 4));
    const float scale = F16ToF32(LoadF16(bytes + side.grids + r * 4 + 2));
    for (size_t i = 0; i < side.count; ++i) {
      const size_t bit = (r * side.count + i) * bits;
      const uint32_t code = bytes[side.codes + bit / 8] >> bit % 8 & ((1u << bits) - 1);
      rows[r * side.run_stride + i * side.element_stride] = zero + scale * float(code);
    }
  }
}

void CheckFormat(MinMaxFormat format) {
  QEVICT_CHECK(format.bits == 2 || format.bits == 4 || format.bits == 8);
  QEVICT_CHECK(format.head_dim > 0 && format.head_dim % 16 == 0 && format.omega > 0);
}

}  // namespace

void EncodeMinMaxWindow(MinMaxFormat format, WindowRows rows, uint8_t* bytes) {
  CheckFormat(format);
  EncodeSide(KeySide(format), format.bits, rows.keys, bytes);
  EncodeSide(ValueSide(format), format.bits, rows.values, bytes);
}

void DecodeMinMaxWindow(MinMaxFormat format, const uint8_t* bytes, float* keys, float* values) {
  CheckFormat(format);
  DecodeSide(KeySide(format), format.bits, bytes, keys);
  DecodeSide(ValueSide(format), format.bits, bytes, values);
}

}  // namespace qevict
