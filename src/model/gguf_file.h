// A GGUF file: metadata and tensor directory, parsed and checked against the file's size; the file
// itself is memory-mapped.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qevict/status.h"

struct gguf_context;
struct ggml_context;
struct ggml_tensor;

namespace qevict {

// Read-only view; all members may be called from any thread.
class GgufFile {
 public:
  // Errors: kNotFound, kIo, kBadFile (not GGUF, truncated, tensors outside the file, absurd sizes),
  // kUnsupported (another version or byte order), kOutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<GgufFile>> Open(const std::string& path);
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;
  ~GgufFile();

  const std::string& path() const { return path_; }
  uint64_t file_bytes() const { return file_bytes_; }
  const uint8_t* mapping() const { return mapping_; }  // page-aligned, file_bytes() long, read-only

  // nullopt: the key is absent. Error kBadFile: it has another type. Integers of any width convert
  // when the value fits, floats of any width convert; a string ends at its first zero byte.
  [[nodiscard]] Result<std::optional<uint32_t>> FindU32(std::string_view key) const;
  [[nodiscard]] Result<std::optional<float>> FindF32(std::string_view key) const;
  [[nodiscard]] Result<std::optional<bool>> FindBool(std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::string>> FindString(std::string_view key) const;
  // Integers or booleans; a scalar gives one element.
  [[nodiscard]] Result<std::optional<std::vector<uint32_t>>> FindU32Array(
      std::string_view key) const;
  // The views live as long as the file is open.
  [[nodiscard]] Result<std::optional<std::vector<std::string_view>>> FindStringArray(
      std::string_view key) const;
  // Number of elements of an array of any type.
  [[nodiscard]] Result<std::optional<uint64_t>> FindArrayLength(std::string_view key) const;

  // Shape and type; its `data` is null. nullptr: no such tensor.
  const ggml_tensor* FindTensor(std::string_view name) const;
  // The tensor's bytes inside the mapping, ggml_nbytes(tensor) of them.
  const uint8_t* TensorBytes(const ggml_tensor* tensor) const;
  std::vector<const ggml_tensor*> Tensors() const;  // in file order

 private:
  GgufFile() = default;
  Status Map(int descriptor);
  Status Parse();
  int64_t FindKey(std::string_view key) const;  // < 0: absent
  std::string path_;
  uint64_t file_bytes_ = 0;
  const uint8_t* mapping_ = nullptr;
  uint64_t tensor_offset_ = 0;  // where the tensor section starts in the file
  gguf_context* gguf_ = nullptr;
  ggml_context* tensors_ = nullptr;
};

}  // namespace qevict
