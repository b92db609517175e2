#include "model/build_facts.h"

#include <ggml.h>
#include <llama.h>

#include "model/cpu_backend.h"
#include "model/layer_products.h"

namespace qevict {

BuildFacts GgmlBuildFacts() {
  LoadGgmlBackends();
  std::string features = llama_print_system_info();
  features.erase(features.find_last_not_of(" |") + 1);
  return {.ggml_version = ggml_version(),
          .ggml_commit = ggml_commit(),
          .llama_version = QEVICT_LLAMA_VERSION,
          .ggml_cpu = QEVICT_GGML_CPU,
          .prompt_products = LayerProducts::Describe(Products::kFastest),
          .cpu_features = std::move(features)};
}

}  // namespace qevict
