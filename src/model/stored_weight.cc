#include "model/stored_weight.h"

#include <cstring>

namespace qevict {

void StoredWeight::Unpack(uint32_t first, uint32_t rows, size_t inputs, float* to) const {
  const size_t row_bytes = ggml_row_size(type, int64_t(inputs));
  const uint8_t* from = bytes + first * row_bytes;
  if (type == GGML_TYPE_F32) {
    std::memcpy(to, from, rows * row_bytes);
    return;
  }
  const ggml_to_float_t to_float = ggml_get_type_traits(type)->to_float;
  for (uint32_t row = 0; row < rows; ++row, from += row_bytes, to += inputs)
    to_float(from, to, int64_t(inputs));
}

}  // namespace qevict
