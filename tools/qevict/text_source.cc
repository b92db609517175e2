#include "tools/qevict/text_source.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "core/utf8.h"
#include "model/tokenizer.h"

namespace qevict::cli {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string NameOf(const std::string& path) {
  return path == "-" ? "standard input" : fmt::format("'{}'", ReplaceInvalidUtf8(path));
}

struct CloseFile {
  void operator()(std::FILE* file) const {
    if (file != stdin) std::fclose(file);
  }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

Result<File> Open(const std::string& path) {
  if (path == "-") return File(stdin);
  struct stat status;
  if (stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
    return Fail(ErrorCode::kIo, fmt::format("{} is a folder; name a text file", NameOf(path)));
  }
  File file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
    return Fail(code, fmt::format("{} cannot be read: {}", NameOf(path), std::strerror(errno)));
  }
  return file;
}

}  // namespace

Status CheckUtf8(std::string_view text, std::string_view where) {
  if (const auto offset = FirstInvalidUtf8(text)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} is not valid UTF-8 at byte {}; convert it to UTF-8 first", where, *offset));
  }
  return {};
}

Result<std::string> ReadTextFile(const std::string& path) {
  QEVICT_ASSIGN_OR_RETURN(const File file, Open(path));
  std::string text;
  char buffer[1 << 16];
  while (const size_t bytes = std::fread(buffer, 1, sizeof buffer, file.get())) {
    text.append(buffer, bytes);
    if (text.size() > Tokenizer::kMaxTextBytes) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} has more than {} bytes; that is no text for a model",
                              NameOf(path), Tokenizer::kMaxTextBytes));
    }
  }
  if (std::ferror(file.get())) {
    return Fail(ErrorCode::kIo,
                fmt::format("{} cannot be read: {}", NameOf(path), std::strerror(errno)));
  }
  QEVICT_RETURN_IF_ERROR(CheckUtf8(text, NameOf(path)));
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

Result<std::string> ReadDocuments(const std::vector<std::string>& files,
                                  std::string_view question) {
  std::string text;
  const auto separate = [&] {
    if (!text.empty()) text += text.ends_with('\n') ? "\n" : "\n\n";
  };
  for (const std::string& path : files) {
    QEVICT_ASSIGN_OR_RETURN(const std::string document, ReadTextFile(path));
    separate();
    text += document;
  }
  if (!question.empty()) separate();
  text += question;
  return text;
}

}  // namespace qevict::cli
