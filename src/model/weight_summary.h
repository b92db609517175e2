// How many weights a GGUF file holds and in which types, from its tensor directory alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/gguf_file.h"

namespace qevict {

struct WeightTypeShare {
  std::string type;  // ggml's name, "q4_K"
  uint64_t tensors = 0, parameters = 0, bytes = 0;
};
struct WeightSummary {
  uint64_t parameters = 0, bytes = 0;
  std::vector<WeightTypeShare> types;  // most bytes first
};

WeightSummary SummarizeWeights(const GgufFile& file);

}  // namespace qevict
