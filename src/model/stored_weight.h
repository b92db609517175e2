// A weight as the model file holds it.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>

namespace qevict {

struct StoredWeight {
  const uint8_t* bytes = nullptr;  // mapped, [outputs] rows
  ggml_type type = GGML_TYPE_F32;
  uint32_t outputs = 0;
  // to: [rows, inputs], of the rows from `first` on.
  void Unpack(uint32_t first, uint32_t rows, size_t inputs, float* to) const;
};

}  // namespace qevict
