// One token's codes in a page of the quantized tier (kernels/code_layout.h,
// docs/formats/code-page.md): written, read, and moved from slot to slot. Outside of the kernels no
// other code knows where a page keeps which bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "codec/rotation.h"
#include "kernels/code_layout.h"

namespace qevict {

// A key or a value: one code per channel, each below 2^bits, and the scale byte. Codes from
// head_dim on mean nothing.
struct CodedRow {
  std::array<uint8_t, kMaxCodedHeadDim> codes;
  uint8_t scale;
};

struct CodedToken {
  CodedRow key, value;
};

// `page` has format.page_bytes() bytes; slot is the token's place in it, below kCodePageTokens.
// Puts replace what the slot held and leave the bits of all other slots as they are, so that two
// threads must not write into one page at once.
void PutToken(CodeFormat format, uint8_t* page, size_t slot, const CodedToken& token);
CodedToken GetToken(CodeFormat format, const uint8_t* page, size_t slot);
// The same bits that a GetToken() and a PutToken() would move, without unpacking the key. The
// pages, and the slots, may be the same.
void CopyToken(CodeFormat format, const uint8_t* from, size_t from_slot, uint8_t* to,
               size_t to_slot);

}  // namespace qevict
