// How far RoPE turns each pair of channels per position, with everything that stretches a model's
// context applied: linear scaling, YaRN, Llama 3.1's frequency factors. The same numbers as ggml's
// rope operation uses; tests/model/rope_angles_test.cc holds them against it.
#pragma once

#include <vector>

#include "model/gguf_file.h"
#include "model/hyperparameters.h"

namespace qevict {

// [rope_dims / 2] radians per position, of the layers without sliding-window attention.
// YaRN's factor on the magnitude of queries and keys is not part of it.
std::vector<double> RopeAngles(const GgufFile& file, const Hyperparameters& hyperparameters);

}  // namespace qevict
