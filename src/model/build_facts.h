// What ggml and libllama this build contains, for `version` and reports.
#pragma once

#include <string>

namespace qevict {

struct BuildFacts {
  std::string ggml_version, ggml_commit;
  std::string llama_version;    // of the installed package, "0.5.0"
  std::string ggml_cpu;         // "native": built for one machine; "variants": chosen at run time
  std::string prompt_products;  // "oneDNN 2.6.3, bf16", or "ggml"
  // What ggml's kernels use on this machine, "CPU : SSE3 = 1 | AVX2 = 1 | ...".
  std::string cpu_features;
};

// Loads ggml's backends when they are shared libraries. Any thread.
BuildFacts GgmlBuildFacts();

}  // namespace qevict
