// A file system of a few KiB mounted on a folder, to fill it. Mounting needs rights that a test may
// not have.
#pragma once

#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

namespace qevict::test {

class SmallFileSystem {
 public:
  SmallFileSystem(const std::filesystem::path& folder, size_t kib) : folder_(folder) {
    const std::string options = "size=" + std::to_string(kib) + "k";
    if (mount("tmpfs", folder_.c_str(), "tmpfs", 0, options.c_str()) != 0)
      error_ = std::strerror(errno);
  }
  SmallFileSystem(const SmallFileSystem&) = delete;
  SmallFileSystem& operator=(const SmallFileSystem&) = delete;
  ~SmallFileSystem() {
    if (error_.empty()) umount(folder_.c_str());
  }
  const std::string& error() const { return error_; }  // empty: mounted

 private:
  std::filesystem::path folder_;
  std::string error_;
};

}  // namespace qevict::test
