#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attend_codes/attend_codes.h"

namespace qevict {
namespace {

uint32_t KeyCode(const uint8_t* page, const CodeFormat& format, size_t t, size_t c) {
  const uint8_t* block = page + t / kCodeBlockTokens * format.key_block_bytes();
  const size_t byte = 4 * (t % kCodeBlockTokens) + c % 4;
  if (format.key_bits == 4) {
    return uint32_t(block[c / 8 * kCodeLineBytes + byte]) >> (4 * (c / 4 % 2)) & 15;
  }
  const uint32_t low = uint32_t(block[c / 16 * kCodeLineBytes + byte]) >> (2 * (c / 4 % 4)) & 3;
  if (format.key_bits == 2) return low;
  const uint8_t* third = block + format.head_dim / 16 * kCodeLineBytes;
  return low | (uint32_t(third[c / 32 * kCodeLineBytes + byte]) >> (c / 4 % 8) & 1) << 2;
}

uint32_t ValueCode(const uint8_t* page, const CodeFormat& format, size_t t, size_t c) {
  const uint32_t bits = format.value_bits;
  const size_t in_group = t % format.value_group_tokens();
  const uint8_t* group =
      page + format.keys_bytes() + t / format.value_group_tokens() * format.value_group_bytes();
  const uint32_t byte = group[c / 16 * kCodeLineBytes + 4 * (c % 16) + in_group % 4];
  return byte >> (bits * (in_group / 4)) & ((1u << bits) - 1);
}

float Scale(uint8_t byte, int steps) { return std::exp2(float(byte - 128) / float(steps)); }

// One row over the slots [begin, end) of one page, which starts at slot `first`.
void AttendPage(const AttendCodesArgs& args, size_t r, size_t begin, size_t end) {
  const CodeFormat& format = args.format;
  const size_t head_dim = format.head_dim;
  const uint8_t* page = args.pages[begin / kCodePageTokens];
  const size_t first = begin / kCodePageTokens * kCodePageTokens;
  const CodeLevels& keys = LevelsOf(format.key_bits);
  const CodeLevels& values = LevelsOf(format.value_bits);
  float& m = args.state.m[r];
  float& d = args.state.d[r];
  float* o = args.state.o + r * head_dim;
  const size_t first_window = args.begin / args.omega;

  float weights[kCodePageTokens] = {};
  float new_m = m;
  for (size_t t = begin; t < end; ++t) {
    int32_t sum = 0;
    for (size_t c = 0; c < head_dim; ++c) {
      sum += args.q[r * head_dim + c] * keys.table[KeyCode(page, format, t - first, c)];
    }
    const float scale = Scale(page[format.key_scales_offset() + t - first], kKeyScaleSteps);
    float score = float(sum) * scale * (args.q_scale[r] * keys.unit);
    if (args.bias != nullptr) {
      const size_t window = t / args.omega - first_window;
      score += args.bias[r * args.bias_stride + args.bias_of_window[window]];
    }
    weights[t - first] = score;
    new_m = std::max(new_m, score);
  }

  const float rescale = d == 0.0f ? 0.0f : std::exp(m - new_m);
  m = new_m;
  d *= rescale;
  for (size_t c = 0; c < head_dim; ++c) o[c] *= rescale;
  if (args.masses != nullptr) {
    for (size_t w = 0; w < (args.end - args.begin) / args.omega; ++w) {
      args.masses[r * args.mass_stride + w] *= rescale;
    }
  }
  float largest = 0.0f;
  for (size_t t = begin; t < end; ++t) {
    // -inf where every score so far is: such a row has seen no key.
    const float score = weights[t - first];
    const float p = score == m && std::isinf(m) ? 0.0f : std::exp(score - m);
    d += p;
    if (args.masses != nullptr) {
      args.masses[r * args.mass_stride + t / args.omega - first_window] += p;
    }
    weights[t - first] =
        p * Scale(page[format.value_scales_offset() + t - first], kValueScaleSteps);
    largest = std::max(largest, weights[t - first]);
  }
  if (largest == 0.0f) return;
  for (size_t t = begin; t < end; ++t) {
    const float byte = std::nearbyint(weights[t - first] / largest * 255.0f);
    const float weight = byte * (largest / 255.0f) * values.unit;
    for (size_t c = 0; c < head_dim; ++c) {
      o[c] += weight * float(values.table[ValueCode(page, format, t - first, c)]);
    }
  }
}

}  // namespace

void AttendCodesScalar(const AttendCodesArgs& args) {
  for (size_t r = 0; r < args.rows; ++r) {
    if (args.masses != nullptr) {
      std::fill_n(args.masses + r * args.mass_stride, (args.end - args.begin) / args.omega, 0.0f);
    }
    for (size_t slot = args.begin; slot < args.end;) {
      const size_t page_end = (slot / kCodePageTokens + 1) * kCodePageTokens;
      const size_t end = std::min(page_end, args.end);
      AttendPage(args, r, slot, end);
      slot = end;
    }
  }
}

}  // namespace qevict
