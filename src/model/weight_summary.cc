#include "model/weight_summary.h"

#include <ggml.h>

#include <algorithm>

namespace qevict {

WeightSummary SummarizeWeights(const GgufFile& file) {
  WeightSummary summary;
  for (const ggml_tensor* tensor : file.Tensors()) {
    const std::string type = ggml_type_name(tensor->type);
    auto share = std::ranges::find(summary.types, type, &WeightTypeShare::type);
    if (share == summary.types.end()) share = summary.types.insert(share, {.type = type});
    const uint64_t parameters = uint64_t(ggml_nelements(tensor)), bytes = ggml_nbytes(tensor);
    ++share->tensors;
    share->parameters += parameters;
    share->bytes += bytes;
    summary.parameters += parameters;
    summary.bytes += bytes;
  }
  std::ranges::stable_sort(summary.types, std::ranges::greater{}, &WeightTypeShare::bytes);
  return summary;
}

}  // namespace qevict
