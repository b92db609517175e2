// Refuses a file whose hyper-parameters are right but whose tensors are not those of the model.
#pragma once

#include "model/gguf_file.h"
#include "model/hyperparameters.h"
#include "qevict/status.h"

namespace qevict {

// Every tensor that the family needs is there with the shape that `shape` asks for and a type that
// can be computed with, and none is there that would change the result but that the graph does not
// use. Errors: kBadFile, kUnsupported.
Status ValidateTensors(const GgufFile& file, const Hyperparameters& shape);

}  // namespace qevict
