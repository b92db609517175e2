#include "engine/zip_member.h"

#include <fmt/format.h>
#include <zip.h>

#include <memory>
#include <vector>

namespace qevict {
namespace {

struct ArchiveCloser {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct MemberCloser {
  void operator()(zip_file_t* member) const { zip_fclose(member); }
};

std::string ZipErrorText(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  std::string text = zip_error_strerror(&error);
  zip_error_fini(&error);
  return text;
}

ErrorCode CodeOfOpenError(int code) {
  if (code == ZIP_ER_NOENT) return ErrorCode::kNotFound;
  return code == ZIP_ER_OPEN || code == ZIP_ER_READ ? ErrorCode::kIo : ErrorCode::kBadFile;
}

}  // namespace

Status ReadZipMember(const std::string& path, std::string_view member, const BytesFn& on_bytes) {
  int code = 0;
  const std::unique_ptr<zip_t, ArchiveCloser> archive(zip_open(path.c_str(), ZIP_RDONLY, &code));
  if (archive == nullptr) {
    return Fail(CodeOfOpenError(code),
                fmt::format("{} cannot be opened as an archive: {}", path, ZipErrorText(code)));
  }
  const std::unique_ptr<zip_file_t, MemberCloser> file(
      zip_fopen(archive.get(), std::string(member).c_str(), 0));
  if (file == nullptr)
    return Fail(ErrorCode::kBadFile, fmt::format("{} has no member {}", path, member));
  std::vector<uint8_t> buffer(size_t{1} << 20);
  zip_int64_t bytes = 0;
  while ((bytes = zip_fread(file.get(), buffer.data(), buffer.size())) > 0) {
    QEVICT_RETURN_IF_ERROR(on_bytes({buffer.data(), size_t(bytes)}));
  }
  if (bytes < 0) {
    return Fail(ErrorCode::kBadFile,
                fmt::format("{} is damaged at {}: {}", path, member,
                            zip_error_strerror(zip_file_get_error(file.get()))));
  }
  return {};
}

}  // namespace qevict
