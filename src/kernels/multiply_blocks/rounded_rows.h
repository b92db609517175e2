// The int8 activations of one call in its scratch.
#pragma once

#include "kernels/multiply_blocks/multiply_blocks.h"

namespace qevict {

// A group whose activations are all smaller counts as zeros: the inverse of its scale would be no
// number.
inline constexpr float kLeastActivation = 0x1p-100f;

struct RoundedRows {
  RoundedRows(uint8_t* scratch, size_t row_inputs)
      : inputs(row_inputs),
        groups(row_inputs / kWeightGroup),
        codes(reinterpret_cast<int8_t*>(scratch)),
        scales(reinterpret_cast<float*>(scratch + kMultiplyMostRows * row_inputs)),
        products(scales + kMultiplyMostRows * groups),
        sums(reinterpret_cast<int32_t*>(products + kMultiplyMostRows * groups)) {}
  size_t inputs, groups;
  int8_t* codes;    // [rows, inputs]
  float* scales;    // [rows, groups]
  float* products;  // [rows, groups], scale times the sum of a group's codes
  int32_t* sums;    // [rows, groups, 2], of the codes of 16 inputs each
};

}  // namespace qevict
