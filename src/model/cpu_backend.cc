#include "model/cpu_backend.h"

#include <dlfcn.h>
#include <ggml.h>

#include <filesystem>
#include <mutex>

#include "model/ggml_log.h"

namespace qevict {

void LoadGgmlBackends() {
  static std::once_flag loaded;
  std::call_once(loaded, [] {
    RouteGgmlLog();  // loading says which library it took
    if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) != nullptr) return;  // linked in
    // ggml left to itself would also load what lies in the current folder.
    Dl_info library;
    if (dladdr(reinterpret_cast<const void*>(&ggml_backend_load_all_from_path), &library) == 0) {
      return;
    }
    const auto folder = std::filesystem::path(library.dli_fname).parent_path();
    ggml_backend_load_all_from_path(folder.c_str());
  });
}

void GgmlDeleter::operator()(ggml_context* context) const { ggml_free(context); }

Result<CpuBackend> CpuBackend::Create(uint32_t threads) {
  LoadGgmlBackends();
  CpuBackend cpu;
  cpu.device_ = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  cpu.backend_.reset(cpu.device_ == nullptr ? nullptr
                                            : ggml_backend_dev_init(cpu.device_, nullptr));
  if (cpu.backend_ == nullptr) {
    return Fail(ErrorCode::kInternal,
                "ggml has no CPU backend; its shared libraries must lie in one folder");
  }
  ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(cpu.device_);
  const auto address = [registry](const char* name) {
    return ggml_backend_reg_get_proc_address(registry, name);
  };
  const auto set_n_threads =
      reinterpret_cast<ggml_backend_set_n_threads_t>(address("ggml_backend_set_n_threads"));
  cpu.set_abort_callback_ = reinterpret_cast<ggml_backend_set_abort_callback_t>(
      address("ggml_backend_set_abort_callback"));
  if (set_n_threads == nullptr || cpu.set_abort_callback_ == nullptr) {
    return Fail(
        ErrorCode::kInternal,
        "ggml's CPU backend lacks functions that qevict needs; build it from the version that "
        "scripts/build-llama.sh names");
  }
  set_n_threads(cpu.backend_.get(), int(threads));
  if (const auto extra = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
          address("ggml_backend_dev_get_extra_bufts"))) {
    for (ggml_backend_buffer_type_t* type = extra(cpu.device_); type != nullptr && *type != nullptr;
         ++type) {
      cpu.repacked_types_.push_back(*type);
    }
  }
  return cpu;
}

void CpuBackend::SetAbortCallback(ggml_abort_callback callback, void* context) {
  set_abort_callback_(backend_.get(), callback, context);
}

}  // namespace qevict
