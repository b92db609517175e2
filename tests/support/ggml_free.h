#pragma once

#include <ggml.h>
#include <gguf.h>

namespace qevict::test {

// For std::unique_ptr.
struct GgmlFree {
  void operator()(gguf_context* context) const { gguf_free(context); }
  void operator()(ggml_context* context) const { ggml_free(context); }
};

}  // namespace qevict::test
