#include "model/gguf_scan.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_set>

#include "ggml.h"
#include "gguf.h"

namespace qevict {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF fields are read in place");

constexpr uint64_t kMaxAlignment = 1u << 16;
constexpr size_t kMaxKeyBytes = 65535;  // the format's own limit

bool IsPlainAscii(std::string_view text) {
  for (unsigned char c : text) {
    if (c < 0x20 || c >= 0x7f) return false;
  }
  return true;
}

// Bytes of one value of a scalar type; 0 for strings, arrays and unknown types.
uint64_t ScalarBytes(uint32_t type) {
  switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_INT8:
    case GGUF_TYPE_BOOL:
      return 1;
    case GGUF_TYPE_UINT16:
    case GGUF_TYPE_INT16:
      return 2;
    case GGUF_TYPE_UINT32:
    case GGUF_TYPE_INT32:
    case GGUF_TYPE_FLOAT32:
      return 4;
    case GGUF_TYPE_UINT64:
    case GGUF_TYPE_INT64:
    case GGUF_TYPE_FLOAT64:
      return 8;
    default:
      return 0;
  }
}

class Scanner {
 public:
  Scanner(std::span<const uint8_t> file, std::string_view path, const GgufLimits& limits)
      : file_(file), path_(path), limits_(limits) {}

  Status Run() {
    QEVICT_RETURN_IF_ERROR(ReadPreamble());
    for (uint64_t i = 0; i < keys_; ++i) QEVICT_RETURN_IF_ERROR(ReadKey(i));
    for (uint64_t i = 0; i < tensors_; ++i) QEVICT_RETURN_IF_ERROR(ReadTensor(i));
    const uint64_t section = (at_ + alignment_ - 1) & ~(alignment_ - 1);
    return CheckTensorEnds(section);
  }

 private:
  struct Extent {
    std::string_view name;
    uint64_t offset, bytes;
  };

  template <typename T>
  bool Read(T& value) {
    if (file_.size() - at_ < sizeof(T)) return false;
    std::memcpy(&value, file_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }
  bool Skip(uint64_t bytes) {
    if (file_.size() - at_ < bytes) return false;
    at_ += bytes;
    return true;
  }
  bool ReadString(std::string_view& text) {
    uint64_t bytes = 0;
    if (!Read(bytes) || file_.size() - at_ < bytes) return false;
    text = {reinterpret_cast<const char*>(file_.data()) + at_, bytes};
    at_ += bytes;
    return true;
  }

  tl::unexpected<Error> Bad(std::string_view what) const {
    return Fail(ErrorCode::kBadFile,
                fmt::format("'{}' is damaged: {}; fetch it again", path_, what));
  }
  tl::unexpected<Error> Truncated(std::string_view what) const {
    return Fail(ErrorCode::kBadFile, fmt::format("'{}' is truncated or damaged: {} runs past the "
                                                 "end of the file ({} bytes); fetch it again",
                                                 path_, what, file_.size()));
  }

  Status ReadPreamble() {
    if (file_.empty())
      return Fail(ErrorCode::kBadFile, fmt::format("'{}' is empty; fetch it again", path_));
    char magic[4];
    if (!Read(magic) || std::memcmp(magic, GGUF_MAGIC, sizeof(magic)) != 0) {
      return Fail(
          ErrorCode::kBadFile,
          fmt::format("'{}' is not a GGUF file; give the path of a model in GGUF format", path_));
    }
    uint32_t version = 0;
    if (!Read(version)) return Truncated("the header");
    if (version <= 1 || (version & 0xffff) == 0) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("'{}' is {}; convert the model again", path_,
                              version == 0   ? "in version 0 of GGUF, which never was"
                              : version == 1 ? "in version 1 of GGUF, which is no longer read"
                                             : "a big-endian GGUF file"));
    }
    if (version > GGUF_VERSION) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("'{}' is in version {} of GGUF; this build reads versions 2 to {}",
                              path_, version, GGUF_VERSION));
    }
    if (!Read(tensors_) || !Read(keys_)) return Truncated("the header");
    if (keys_ > limits_.max_keys) return Bad(fmt::format("it claims {} metadata keys", keys_));
    if (tensors_ > limits_.max_tensors) return Bad(fmt::format("it claims {} tensors", tensors_));
    if (tensors_ == 0)
      return Fail(ErrorCode::kBadFile,
                  fmt::format("'{}' holds no tensors; it is not a model", path_));
    return {};
  }

  Status ReadKey(uint64_t index) {
    std::string_view key;
    uint32_t type = 0;
    if (!ReadString(key) || !Read(type)) return Truncated(fmt::format("metadata key {}", index));
    if (key.empty() || key.size() > kMaxKeyBytes || !IsPlainAscii(key)) {
      return Bad(fmt::format("metadata key {} is named '{}'", index, Printable(key)));
    }
    if (!seen_keys_.insert(key).second)
      return Bad(fmt::format("metadata key '{}' occurs twice", Printable(key)));
    QEVICT_RETURN_IF_ERROR(key == "general.alignment" ? ReadAlignment(type) : SkipValue(key, type));
    if (at_ > limits_.max_header_bytes)
      return Bad(fmt::format("its metadata is larger than {} bytes", limits_.max_header_bytes));
    return {};
  }

  Status ReadAlignment(uint32_t type) {
    uint32_t value = 0;
    if (type != GGUF_TYPE_UINT32) return Bad("general.alignment is not a 32-bit number");
    if (!Read(value)) return Truncated("general.alignment");
    // The format asks for a multiple of 8; a power of two is what ggml demands.
    if (!std::has_single_bit(value) || value < 8 || value > kMaxAlignment) {
      return Bad(fmt::format("general.alignment is {}", value));
    }
    alignment_ = value;
    return {};
  }

  Status SkipValue(std::string_view key, uint32_t type) {
    std::string_view text;
    if (type == GGUF_TYPE_STRING) {
      if (!ReadString(text)) return Truncated(fmt::format("the value of '{}'", Printable(key)));
      return {};
    }
    uint64_t count = 1;
    if (type == GGUF_TYPE_ARRAY && (!Read(type) || !Read(count))) {
      return Truncated(fmt::format("the value of '{}'", Printable(key)));
    }
    if (type == GGUF_TYPE_STRING) {
      if (count > limits_.max_strings - strings_)
        return Bad(fmt::format("'{}' claims {} strings", Printable(key), count));
      strings_ += count;
      for (uint64_t i = 0; i < count; ++i) {
        if (!ReadString(text))
          return Truncated(fmt::format("string {} of '{}'", i, Printable(key)));
      }
      return {};
    }
    const uint64_t bytes = ScalarBytes(type);
    if (bytes == 0)
      return Bad(fmt::format("metadata key '{}' has the unknown type {}", Printable(key), type));
    if (count > file_.size() / bytes || !Skip(count * bytes)) {
      return Truncated(fmt::format("the value of '{}'", Printable(key)));
    }
    return {};
  }

  Status ReadTensor(uint64_t index) {
    std::string_view name;
    if (!ReadString(name)) return Truncated(fmt::format("the name of tensor {}", index));
    if (name.empty() || name.size() >= GGML_MAX_NAME || !IsPlainAscii(name)) {
      return Bad(fmt::format("tensor {} is named '{}'", index, Printable(name)));
    }
    if (!seen_tensors_.insert(name).second)
      return Bad(fmt::format("tensor '{}' occurs twice", name));
    uint32_t dims = 0, type = 0;
    int64_t shape[GGML_MAX_DIMS] = {1, 1, 1, 1};
    if (!Read(dims)) return Truncated(fmt::format("tensor '{}'", name));
    if (dims > GGML_MAX_DIMS) return Bad(fmt::format("tensor '{}' has {} dimensions", name, dims));
    for (uint32_t d = 0; d < dims; ++d) {
      if (!Read(shape[d])) return Truncated(fmt::format("tensor '{}'", name));
    }
    uint64_t offset = 0;
    if (!Read(type) || !Read(offset)) return Truncated(fmt::format("tensor '{}'", name));
    const std::optional<uint64_t> bytes = TensorBytes(type, shape);
    if (!bytes) {
      return Bad(fmt::format(
          "tensor '{}' has type {} and shape [{}, {}, {}, {}], which no tensor can have", name,
          type, shape[0], shape[1], shape[2], shape[3]));
    }
    if (offset != next_offset_) {
      return Bad(fmt::format("tensor '{}' starts at {} of the tensor section instead of {}", name,
                             offset, next_offset_));
    }
    extents_.push_back({name, offset, *bytes});
    next_offset_ = offset + ((*bytes + alignment_ - 1) & ~(alignment_ - 1));
    return {};
  }

  // nullopt: an unknown or removed type, a zero or negative dimension, rows that are no whole
  // number of blocks, or a size that does not fit.
  static std::optional<uint64_t> TensorBytes(uint32_t type, const int64_t (&shape)[GGML_MAX_DIMS]) {
    if (type >= GGML_TYPE_COUNT) return std::nullopt;
    const auto ggml_type_id = static_cast<ggml_type>(type);
    const int64_t block = ggml_blck_size(ggml_type_id);
    const uint64_t block_bytes = ggml_type_size(ggml_type_id);
    if (block == 0 || block_bytes == 0 || shape[0] <= 0 || shape[0] % block != 0)
      return std::nullopt;
    // So that the sum over max_tensors cannot overflow.
    constexpr uint64_t kMaxBytes = uint64_t{1} << 46;
    uint64_t bytes = static_cast<uint64_t>(shape[0] / block);
    if (bytes > kMaxBytes / block_bytes) return std::nullopt;
    bytes *= block_bytes;
    for (int d = 1; d < GGML_MAX_DIMS; ++d) {
      if (shape[d] <= 0 || static_cast<uint64_t>(shape[d]) > kMaxBytes / bytes) return std::nullopt;
      bytes *= static_cast<uint64_t>(shape[d]);
    }
    return bytes;
  }

  Status CheckTensorEnds(uint64_t section) const {
    for (const Extent& extent : extents_) {
      const uint64_t end = section + extent.offset + extent.bytes;
      if (end > file_.size()) {
        return Fail(ErrorCode::kBadFile, fmt::format("'{}' is truncated: tensor '{}' ends at byte "
                                                     "{} but the file has {} bytes; fetch it again",
                                                     path_, extent.name, end, file_.size()));
      }
    }
    return {};
  }

  std::span<const uint8_t> file_;
  std::string_view path_;
  const GgufLimits limits_;
  uint64_t at_ = 0;  // <= file_.size()
  uint64_t keys_ = 0, tensors_ = 0, strings_ = 0;
  uint64_t alignment_ = GGUF_DEFAULT_ALIGNMENT;
  uint64_t next_offset_ = 0;
  std::vector<Extent> extents_;
  std::unordered_set<std::string_view> seen_keys_, seen_tensors_;
};

}  // namespace

Status ScanGguf(std::span<const uint8_t> file, std::string_view path, const GgufLimits& limits) {
  return Scanner(file, path, limits).Run();
}

std::string Printable(std::string_view text) {
  std::string result(text.substr(0, 64));
  for (char& c : result) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) c = '?';
  }
  return result;
}

}  // namespace qevict
