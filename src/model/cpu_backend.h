// ggml's CPU backend, reached through its registry, so that a build with run-time CPU variants
// (shared backends) works the same.
#pragma once

#include <ggml-backend.h>

#include <memory>
#include <vector>

#include "qevict/status.h"

namespace qevict {

struct GgmlDeleter {
  void operator()(ggml_backend* backend) const { ggml_backend_free(backend); }
  void operator()(ggml_backend_buffer* buffer) const { ggml_backend_buffer_free(buffer); }
  void operator()(ggml_context* context) const;
};
using BackendPtr = std::unique_ptr<ggml_backend, GgmlDeleter>;
using BackendBufferPtr = std::unique_ptr<ggml_backend_buffer, GgmlDeleter>;
using GgmlContextPtr = std::unique_ptr<ggml_context, GgmlDeleter>;

// Loads ggml's backends, where they are shared libraries, from the folder of ggml's own library.
// Once per process; CpuBackend::Create does it, and who calls libllama before must.
void LoadGgmlBackends();

class CpuBackend {
 public:
  // Error kInternal: no CPU backend is linked in or lies beside ggml's library.
  [[nodiscard]] static Result<CpuBackend> Create(uint32_t threads);

  ggml_backend_t backend() const { return backend_.get(); }
  ggml_backend_dev_t device() const { return device_; }
  // Buffer types with repacked weight layouts, best first. Weights are copied into their buffers.
  const std::vector<ggml_backend_buffer_type_t>& repacked_types() const { return repacked_types_; }
  // `callback` is asked between graph nodes; true ends the run. nullptr: never asked.
  void SetAbortCallback(ggml_abort_callback callback, void* context);

 private:
  CpuBackend() = default;
  BackendPtr backend_;
  ggml_backend_dev_t device_ = nullptr;
  std::vector<ggml_backend_buffer_type_t> repacked_types_;
  ggml_backend_set_abort_callback_t set_abort_callback_ = nullptr;
};

}  // namespace qevict
