#include "engine/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

namespace qevict {
namespace {

// Makes a rename durable.
void SyncFolder(const std::filesystem::path& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

bool HasName(int fd, const std::string& path) {
  struct stat open_file, named;
  return fstat(fd, &open_file) == 0 && stat(path.c_str(), &named) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

}  // namespace

Result<AtomicFile> AtomicFile::Create(const std::string& path) {
  const std::filesystem::path target(path);
  AtomicFile file;
  file.path_ = path;
  file.partial_path_ = target.parent_path() / ("." + target.filename().string() + ".partial");
  for (;;) {
    file.fd_ = open(file.partial_path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (file.fd_ < 0) return tl::unexpected(file.WriteError(errno).error());
    int error = 0;
    while (flock(file.fd_, LOCK_EX) != 0 && (error = errno) == EINTR) error = 0;
    if (error == 0 && HasName(file.fd_, file.partial_path_)) break;
    close(std::exchange(file.fd_, -1));
    if (error != 0) return tl::unexpected(file.WriteError(error).error());
    // The writer before has put it in place, or removed it.
  }
  if (ftruncate(file.fd_, 0) != 0) return tl::unexpected(file.WriteError(errno).error());
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_path_(std::move(other.partial_path_)),
      fd_(std::exchange(other.fd_, -1)) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  unlink(partial_path_.c_str());  // before the lock goes with the descriptor
  close(fd_);
}

Status AtomicFile::Write(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return WriteError(errno);
    bytes = bytes.subspan(size_t(written));
  }
  return {};
}

Status AtomicFile::Commit() {
  if (fsync(fd_) != 0) return WriteError(errno);
  if (std::rename(partial_path_.c_str(), path_.c_str()) != 0) return WriteError(errno);
  close(std::exchange(fd_, -1));
  SyncFolder(std::filesystem::path(path_).parent_path());
  return {};
}

Status AtomicFile::WriteError(int error) const {
  if (error == ENOSPC || error == EDQUOT) {
    return Fail(ErrorCode::kIo,
                fmt::format("the disk is full: {} cannot be written; free some space and run again",
                            path_));
  }
  return Fail(ErrorCode::kIo,
              fmt::format("{} cannot be written ({})", path_, std::strerror(error)));
}

}  // namespace qevict
