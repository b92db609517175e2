#include "engine/codec_tables.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <system_error>

#include "engine/atomic_file.h"
#include "engine/sha256.h"

namespace qevict {
namespace {

// Its last two digits are the version. Tables of version 01 had scales that did not fit keys with a
// large mean.
constexpr char kMagic[] = "QEVTAB02";
constexpr size_t kMagicNameChars = 6;
constexpr size_t kHexDigits = 64;
constexpr uint64_t kHeadBytes = 8 << 20;
constexpr uint64_t kPieceBytes = 64 << 10;
constexpr uint64_t kPieces = 64;

struct Header {
  char magic[8];
  char fingerprint[kHexDigits];
  uint32_t layers, kv_heads, head_dim, reserved;
};
static_assert(sizeof(Header) == 88);

Header MakeHeader(const std::string& fingerprint, const TablesShape& shape) {
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof(header.magic));
  std::memcpy(header.fingerprint, fingerprint.data(), std::min(fingerprint.size(), kHexDigits));
  header.layers = shape.layers;
  header.kv_heads = shape.kv_heads;
  header.head_dim = shape.head_dim;
  return header;
}

std::string Digest(std::span<const uint8_t> bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.HexDigest();
}

}  // namespace

std::string ModelFingerprint(const GgufFile& file) {
  const uint64_t bytes = file.file_bytes();
  Sha256 hash;
  hash.Update({reinterpret_cast<const uint8_t*>(&bytes), sizeof(bytes)});
  hash.Update({file.mapping(), size_t(std::min(bytes, kHeadBytes))});
  for (uint64_t piece = 0; bytes > kHeadBytes + kPieceBytes && piece < kPieces; ++piece) {
    const uint64_t last = bytes - kPieceBytes;
    hash.Update({file.mapping() + last / (kPieces - 1) * piece, kPieceBytes});
  }
  return hash.HexDigest();
}

std::string TablesPath(const std::string& folder, const std::string& fingerprint) {
  return folder + "/" + fingerprint + ".tables";
}

Result<std::optional<std::vector<HeadTables>>> ReadTables(const std::string& path,
                                                          const std::string& fingerprint,
                                                          const TablesShape& shape) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return std::nullopt;
  if (status.type() == std::filesystem::file_type::none) {
    return Fail(ErrorCode::kIo, path + " cannot be read (" + error.message() + ")");
  }
  const size_t head_floats = size_t{2} * shape.head_dim + 2;
  const size_t heads = size_t{shape.layers} * shape.kv_heads;
  const size_t payload = sizeof(Header) + heads * head_floats * sizeof(float);
  const Error wrong = {ErrorCode::kBadFile,
                       path + " does not hold the codec's tables of this model; delete it"};
  // Asked before reading: a device has no end and a pipe may have no writer.
  if (status.type() != std::filesystem::file_type::regular) return tl::unexpected(wrong);
  std::string content(payload + kHexDigits, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file) return Fail(ErrorCode::kIo, path + " cannot be read");
  file.read(content.data(), std::streamsize(content.size()));
  const auto same = [&](size_t chars) { return content.compare(0, chars, kMagic, chars) == 0; };
  if (same(kMagicNameChars) && !same(sizeof(Header::magic))) return std::nullopt;
  if (size_t(file.gcount()) != content.size() || file.peek() != std::ifstream::traits_type::eof()) {
    return tl::unexpected(wrong);
  }
  const Header expected = MakeHeader(fingerprint, shape);
  const auto bytes = std::span(reinterpret_cast<const uint8_t*>(content.data()), content.size());
  if (std::memcmp(content.data(), &expected, sizeof(expected)) != 0 ||
      Digest(bytes.first(payload)) != content.substr(payload)) {
    return tl::unexpected(wrong);
  }
  std::vector<HeadTables> tables(heads);
  const char* next = content.data() + sizeof(Header);
  const auto take = [&next](float* to, size_t count) {
    std::memcpy(to, next, count * sizeof(float));
    next += count * sizeof(float);
  };
  for (HeadTables& head : tables) {
    head.weight.resize(shape.head_dim);
    head.mean.resize(shape.head_dim);
    take(head.weight.data(), shape.head_dim);
    take(head.mean.data(), shape.head_dim);
    take(&head.key_scale, 1);
    take(&head.value_scale, 1);
    if (!head.Validate(shape.head_dim)) {
      return Fail(ErrorCode::kBadFile, path + " holds numbers that cannot be used; delete it");
    }
  }
  return tables;
}

Status MakeTablesFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && access(folder.c_str(), W_OK | X_OK) != 0) {
    error = std::error_code(errno, std::generic_category());
  }
  if (!error) return {};
  return Fail(ErrorCode::kIo, folder +
                                  ", where the codec's tables are kept, cannot be written to (" +
                                  error.message() + "); set QEVICT_CACHE to a folder that can");
}

Status WriteTables(const std::string& path, const std::string& fingerprint,
                   const TablesShape& shape, const std::vector<HeadTables>& tables) {
  const Header header = MakeHeader(fingerprint, shape);
  std::string content(reinterpret_cast<const char*>(&header), sizeof(header));
  const auto put = [&content](const float* from, size_t count) {
    content.append(reinterpret_cast<const char*>(from), count * sizeof(float));
  };
  for (const HeadTables& head : tables) {
    put(head.weight.data(), head.weight.size());
    put(head.mean.data(), head.mean.size());
    put(&head.key_scale, 1);
    put(&head.value_scale, 1);
  }
  content += Digest({reinterpret_cast<const uint8_t*>(content.data()), content.size()});
  QEVICT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  QEVICT_RETURN_IF_ERROR(
      file.Write({reinterpret_cast<const uint8_t*>(content.data()), content.size()}));
  return file.Commit();
}

}  // namespace qevict
