#include "model/gguf_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "core/descriptor.h"
#include "core/out_of_memory.h"
#include "ggml.h"
#include "gguf.h"
#include "model/ggml_log.h"
#include "model/gguf_scan.h"

namespace qevict {
namespace {

tl::unexpected<Error> WrongType(const GgufFile& file, std::string_view key,
                                std::string_view expected) {
  return Fail(ErrorCode::kBadFile, fmt::format("'{}' is damaged: the metadata value '{}' is not {}",
                                               file.path(), key, expected));
}

// Element `index` of numeric storage as a 64-bit integer; nullopt for other types and for a uint64
// beyond the range.
std::optional<int64_t> IntegerAt(gguf_type type, const void* storage, size_t index) {
  const auto at = [&]<typename T>(T) { return static_cast<const T*>(storage)[index]; };
  switch (type) {
    case GGUF_TYPE_UINT8:
      return at(uint8_t{});
    case GGUF_TYPE_INT8:
      return at(int8_t{});
    case GGUF_TYPE_UINT16:
      return at(uint16_t{});
    case GGUF_TYPE_INT16:
      return at(int16_t{});
    case GGUF_TYPE_UINT32:
      return at(uint32_t{});
    case GGUF_TYPE_INT32:
      return at(int32_t{});
    case GGUF_TYPE_INT64:
      return at(int64_t{});
    case GGUF_TYPE_UINT64: {
      const uint64_t value = at(uint64_t{});
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<uint32_t> U32At(gguf_type type, const void* storage, size_t index) {
  const std::optional<int64_t> value = IntegerAt(type, storage, index);
  if (!value || *value < 0 || *value > std::numeric_limits<uint32_t>::max()) return std::nullopt;
  return static_cast<uint32_t>(*value);
}

}  // namespace

Result<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  RouteGgmlLog();
  // O_NONBLOCK: opening a named pipe must not wait for a writer.
  const Descriptor descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!descriptor) {
    const bool absent = errno == ENOENT || errno == ENOTDIR;
    return Fail(absent ? ErrorCode::kNotFound : ErrorCode::kIo,
                fmt::format("cannot open the model file '{}': {}", path, std::strerror(errno)));
  }
  std::unique_ptr<GgufFile> file(new GgufFile);
  file->path_ = path;
  QEVICT_RETURN_IF_ERROR(file->Map(descriptor.get()));
  const Status read = OrOutOfMemory(
      fmt::format("no memory for the metadata of '{}'; free some and try again", path),
      [&]() -> Status {
        QEVICT_RETURN_IF_ERROR(ScanGguf({file->mapping_, file->file_bytes_}, path));
        return file->Parse();
      });
  if (!read.ok()) return tl::unexpected(read.error());
  return file;
}

Status GgufFile::Map(int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) {
    return Fail(ErrorCode::kIo,
                fmt::format("cannot read the model file '{}': {}", path_, std::strerror(errno)));
  }
  if (!S_ISREG(status.st_mode)) {
    return Fail(ErrorCode::kIo,
                fmt::format("'{}' is {}; give the path of a GGUF file", path_,
                            S_ISDIR(status.st_mode) ? "a directory" : "not a regular file"));
  }
  if (status.st_size == 0) return {};  // the scan says so; mmap refuses empty files
  file_bytes_ = static_cast<uint64_t>(status.st_size);
  void* mapping = mmap(nullptr, file_bytes_, PROT_READ, MAP_SHARED, descriptor, 0);
  if (mapping == MAP_FAILED) {
    file_bytes_ = 0;
    return Fail(
        errno == ENOMEM ? ErrorCode::kOutOfMemory : ErrorCode::kIo,
        fmt::format("cannot map the model file '{}' into memory: {}", path_, std::strerror(errno)));
  }
  mapping_ = static_cast<const uint8_t*>(mapping);
  return {};
}

Status GgufFile::Parse() {
  TakeGgmlError();
  gguf_ = gguf_init_from_buffer(mapping_, file_bytes_, {.no_alloc = true, .ctx = &tensors_});
  if (gguf_ == nullptr) {
    return Fail(ErrorCode::kBadFile,
                fmt::format("'{}' is damaged: {}", path_, Printable(TakeGgmlError())));
  }
  tensor_offset_ = gguf_get_data_offset(gguf_);
  return {};
}

GgufFile::~GgufFile() {
  gguf_free(gguf_);
  ggml_free(tensors_);
  if (mapping_ != nullptr) munmap(const_cast<uint8_t*>(mapping_), file_bytes_);
}

int64_t GgufFile::FindKey(std::string_view key) const {
  return gguf_find_key(gguf_, std::string(key).c_str());
}

Result<std::optional<uint32_t>> GgufFile::FindU32(std::string_view key) const {
  const int64_t id = FindKey(key);
  if (id < 0) return std::nullopt;
  const gguf_type type = gguf_get_kv_type(gguf_, id);
  if (type == GGUF_TYPE_ARRAY || type == GGUF_TYPE_STRING) return WrongType(*this, key, "a number");
  const std::optional<uint32_t> value = U32At(type, gguf_get_val_data(gguf_, id), 0);
  if (!value) return WrongType(*this, key, "a whole number between 0 and 4294967295");
  return value;
}

Result<std::optional<float>> GgufFile::FindF32(std::string_view key) const {
  const int64_t id = FindKey(key);
  if (id < 0) return std::nullopt;
  switch (gguf_get_kv_type(gguf_, id)) {
    case GGUF_TYPE_FLOAT32:
      return gguf_get_val_f32(gguf_, id);
    case GGUF_TYPE_FLOAT64:
      return static_cast<float>(gguf_get_val_f64(gguf_, id));
    default:
      return WrongType(*this, key, "a floating-point number");
  }
}

Result<std::optional<bool>> GgufFile::FindBool(std::string_view key) const {
  const int64_t id = FindKey(key);
  if (id < 0) return std::nullopt;
  if (gguf_get_kv_type(gguf_, id) != GGUF_TYPE_BOOL) return WrongType(*this, key, "true or false");
  return gguf_get_val_bool(gguf_, id);
}

Result<std::optional<std::string>> GgufFile::FindString(std::string_view key) const {
  const int64_t id = FindKey(key);
  if (id < 0) return std::nullopt;
  if (gguf_get_kv_type(gguf_, id) != GGUF_TYPE_STRING) return WrongType(*this, key, "a text");
  return std::string(gguf_get_val_str(gguf_, id));
}

Result<std::optional<std::vector<uint32_t>>> GgufFile::FindU32Array(std::string_view key) const {
  const int64_t id = FindKey(key);
  if (id < 0) return std::nullopt;
  const gguf_type type = gguf_get_kv_type(gguf_, id);
  if (type != GGUF_TYPE_ARRAY) {
    QEVICT_ASSIGN_OR_RETURN(const std::optional<uint32_t> value, FindU32(key));
    return std::vector<uint32_t>{*value};
  }
  gguf_type element = gguf_get_arr_type(gguf_, id);
  if (element == GGUF_TYPE_STRING) return WrongType(*this, key, "an array of numbers");
  if (element == GGUF_TYPE_BOOL) element = GGUF_TYPE_UINT8;  // ggml stores one byte, 0 or 1
  const size_t count = gguf_get_arr_n(gguf_, id);
  const void* storage = gguf_get_arr_data(gguf_, id);
  std::vector<uint32_t> values(count);
  for (size_t i = 0; i < count; ++i) {
    const std::optional<uint32_t> value = U32At(element, storage, i);
    if (!value) return WrongType(*this, key, "an array of whole numbers between 0 and 4294967295");
    values[i] = *value;
  }
  return values;
}

Result<std::optional<std::vector<std::string_view>>> GgufFile::FindStringArray(
    std::string_view key) const {
  const int64_t id = FindKey(key);
  if (id < 0) return std::nullopt;
  if (gguf_get_kv_type(gguf_, id) != GGUF_TYPE_ARRAY ||
      gguf_get_arr_type(gguf_, id) != GGUF_TYPE_STRING) {
    return WrongType(*this, key, "an array of texts");
  }
  std::vector<std::string_view> texts(gguf_get_arr_n(gguf_, id));
  for (size_t i = 0; i < texts.size(); ++i) texts[i] = gguf_get_arr_str(gguf_, id, i);
  return texts;
}

Result<std::optional<uint64_t>> GgufFile::FindArrayLength(std::string_view key) const {
  const int64_t id = FindKey(key);
  if (id < 0) return std::nullopt;
  if (gguf_get_kv_type(gguf_, id) != GGUF_TYPE_ARRAY) return WrongType(*this, key, "an array");
  return gguf_get_arr_n(gguf_, id);
}

const ggml_tensor* GgufFile::FindTensor(std::string_view name) const {
  return ggml_get_tensor(tensors_, std::string(name).c_str());
}

const uint8_t* GgufFile::TensorBytes(const ggml_tensor* tensor) const {
  const int64_t id = gguf_find_tensor(gguf_, ggml_get_name(tensor));
  return mapping_ + tensor_offset_ + gguf_get_tensor_offset(gguf_, id);
}

std::vector<const ggml_tensor*> GgufFile::Tensors() const {
  std::vector<const ggml_tensor*> tensors;
  for (ggml_tensor* t = ggml_get_first_tensor(tensors_); t != nullptr;
       t = ggml_get_next_tensor(tensors_, t)) {
    tensors.push_back(t);
  }
  return tensors;
}

}  // namespace qevict
