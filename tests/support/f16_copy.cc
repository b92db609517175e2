#include "support/f16_copy.h"

#include <fmt/format.h>

#include <memory>
#include <vector>

#include "support/ggml_free.h"

namespace qevict::test {
namespace {

std::vector<ggml_fp16_t> ToF16(const ggml_tensor* tensor) {
  const int64_t count = ggml_nelements(tensor);
  std::vector<float> values(static_cast<size_t>(count));
  ggml_get_type_traits(tensor->type)->to_float(tensor->data, values.data(), count);
  std::vector<ggml_fp16_t> halves(values.size());
  ggml_fp32_to_fp16_row(values.data(), halves.data(), count);
  return halves;
}

}  // namespace

Status WriteF16Copy(const std::string& from, const std::string& to) {
  ggml_context* loaded = nullptr;
  const std::unique_ptr<gguf_context, GgmlFree> source(
      gguf_init_from_file(from.c_str(), {.no_alloc = false, .ctx = &loaded}));
  const std::unique_ptr<ggml_context, GgmlFree> tensors(loaded);
  if (source == nullptr) return Fail(ErrorCode::kBadFile, fmt::format("cannot read '{}'", from));

  const std::unique_ptr<gguf_context, GgmlFree> copy(gguf_init_empty());
  gguf_set_kv(copy.get(), source.get());
  const int64_t count = gguf_get_n_tensors(source.get());
  const std::unique_ptr<ggml_context, GgmlFree> converted(
      ggml_init({size_t(count + 1) * ggml_tensor_overhead(), nullptr, /*no_alloc=*/true}));
  std::vector<std::vector<ggml_fp16_t>> contents;
  for (int64_t i = 0; i < count; ++i) {
    ggml_tensor* tensor = ggml_get_tensor(tensors.get(), gguf_get_tensor_name(source.get(), i));
    if (ggml_is_quantized(tensor->type)) {
      ggml_tensor* f16 =
          ggml_new_tensor(converted.get(), GGML_TYPE_F16, ggml_n_dims(tensor), tensor->ne);
      ggml_set_name(f16, tensor->name);
      f16->data = contents.emplace_back(ToF16(tensor)).data();
      tensor = f16;
    }
    gguf_add_tensor(copy.get(), tensor);
  }
  if (!gguf_write_to_file(copy.get(), to.c_str(), /*only_meta=*/false)) {
    return Fail(ErrorCode::kIo, fmt::format("cannot write '{}'", to));
  }
  return {};
}

}  // namespace qevict::test
