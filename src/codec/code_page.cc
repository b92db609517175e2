#include "codec/code_page.h"

#include <cstring>

#include "core/check.h"

namespace qevict {

namespace {

constexpr size_t kColumnBytes = 4;  // of one token in a line of K, of one channel in a line of V

// Bits of a line of K: `bits` per channel from bit `shift` of the code on.
struct KeyPlane {
  size_t first_line, lines;
  uint32_t bits, shift;
};

struct KeyPlanes {
  KeyPlane planes[2];
  size_t count;
};

KeyPlanes PlanesOf(CodeFormat format) {
  if (format.key_bits == 4) return {{{0, format.key_lines(), 4, 0}, {}}, 1};
  const size_t two_bit = format.head_dim / 16;
  const KeyPlane low = {0, two_bit, 2, 0};
  if (format.key_bits == 2) return {{low, {}}, 1};
  return {{low, {two_bit, format.key_lines() - two_bit, 1, 2}}, 2};
}

// Byte j of the column of the slot's token in line 0.
size_t KeyColumn(CodeFormat format, size_t slot) {
  return slot / kCodeBlockTokens * format.key_block_bytes() +
         slot % kCodeBlockTokens * kColumnBytes;
}

// Where a value's codes are: channel c's byte is column + c * 4, its code's lowest bit `shift`.
struct ValuePlace {
  size_t column;
  uint32_t shift;
};

ValuePlace PlaceOfValue(CodeFormat format, size_t slot) {
  const size_t group = format.value_group_tokens(), token = slot % group;
  return {format.keys_bytes() + slot / group * format.value_group_bytes() + token % 4,
          uint32_t(token / 4) * format.value_bits};
}

void CheckSlot(CodeFormat format, size_t slot) {
  QEVICT_DCHECK(format.head_dim % 16 == 0 && format.head_dim <= kMaxCodedHeadDim);
  QEVICT_DCHECK(slot < kCodePageTokens);
  (void)format, (void)slot;
}

}  // namespace

void PutToken(CodeFormat format, uint8_t* page, size_t slot, const CodedToken& token) {
  CheckSlot(format, slot);
  const KeyPlanes key = PlanesOf(format);
  for (size_t p = 0; p < key.count; ++p) {
    const KeyPlane& plane = key.planes[p];
    const uint32_t mask = (1u << plane.bits) - 1, per_byte = 8 / plane.bits;
    uint8_t* column = page + KeyColumn(format, slot) + plane.first_line * kCodeLineBytes;
    for (size_t line = 0; line < plane.lines; ++line, column += kCodeLineBytes) {
      for (size_t j = 0; j < kColumnBytes; ++j) {
        uint32_t byte = 0;
        for (uint32_t i = 0; i < per_byte; ++i) {
          const size_t channel = (line * per_byte + i) * kColumnBytes + j;
          // The last 1-bit line is half empty when head_dim is an odd multiple of 16.
          if (channel < format.head_dim)
            byte |= (token.key.codes[channel] >> plane.shift & mask) << (i * plane.bits);
        }
        column[j] = uint8_t(byte);
      }
    }
  }
  const ValuePlace value = PlaceOfValue(format, slot);
  const uint32_t mask = ((1u << format.value_bits) - 1) << value.shift;
  for (size_t c = 0; c < format.head_dim; ++c) {
    uint8_t& byte = page[value.column + c * kColumnBytes];
    byte = uint8_t((byte & ~mask) | (token.value.codes[c] << value.shift & mask));
  }
  page[format.key_scales_offset() + slot] = token.key.scale;
  page[format.value_scales_offset() + slot] = token.value.scale;
}

CodedToken GetToken(CodeFormat format, const uint8_t* page, size_t slot) {
  CheckSlot(format, slot);
  CodedToken token{};
  const KeyPlanes key = PlanesOf(format);
  for (size_t p = 0; p < key.count; ++p) {
    const KeyPlane& plane = key.planes[p];
    const uint32_t mask = (1u << plane.bits) - 1, per_byte = 8 / plane.bits;
    const uint8_t* lines = page + KeyColumn(format, slot) + plane.first_line * kCodeLineBytes;
    for (size_t c = 0; c < format.head_dim; ++c) {
      const size_t unit = c / kColumnBytes;  // `per_byte` of them share a byte
      const uint8_t byte = lines[unit / per_byte * kCodeLineBytes + c % kColumnBytes];
      token.key.codes[c] |= uint8_t((byte >> (unit % per_byte * plane.bits) & mask) << plane.shift);
    }
  }
  const ValuePlace value = PlaceOfValue(format, slot);
  const uint32_t mask = (1u << format.value_bits) - 1;
  for (size_t c = 0; c < format.head_dim; ++c)
    token.value.codes[c] = page[value.column + c * kColumnBytes] >> value.shift & mask;
  token.key.scale = page[format.key_scales_offset() + slot];
  token.value.scale = page[format.value_scales_offset() + slot];
  return token;
}

void CopyToken(CodeFormat format, const uint8_t* from, size_t from_slot, uint8_t* to,
               size_t to_slot) {
  CheckSlot(format, from_slot);
  CheckSlot(format, to_slot);
  if (from == to && from_slot == to_slot) return;
  const uint8_t* from_column = from + KeyColumn(format, from_slot);
  uint8_t* to_column = to + KeyColumn(format, to_slot);
  for (size_t line = 0; line < format.key_lines(); ++line)
    std::memcpy(to_column + line * kCodeLineBytes, from_column + line * kCodeLineBytes,
                kColumnBytes);
  const ValuePlace source = PlaceOfValue(format, from_slot), sink = PlaceOfValue(format, to_slot);
  const uint32_t mask = (1u << format.value_bits) - 1;
  for (size_t c = 0; c < format.head_dim; ++c) {
    const uint32_t code = from[source.column + c * kColumnBytes] >> source.shift & mask;
    uint8_t& byte = to[sink.column + c * kColumnBytes];
    byte = uint8_t((byte & ~(mask << sink.shift)) | code << sink.shift);
  }
  to[format.key_scales_offset() + to_slot] = from[format.key_scales_offset() + from_slot];
  to[format.value_scales_offset() + to_slot] = from[format.value_scales_offset() + from_slot];
}

}  // namespace qevict
