// A file that appears under its name whole or not at all.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "qevict/status.h"

namespace qevict {

// Writes to `.NAME.partial` in the same folder. Commit puts it in place; without it the destructor
// removes what was written. After a kill the partial file stays until the next attempt, which
// starts it anew; NAME itself is never half-written. A second writer of a path, of this process or
// another, waits in Create until the first is done.
class AtomicFile {
 public:
  // Error kIo: the folder is not there or cannot be written to, or the disk is full.
  [[nodiscard]] static Result<AtomicFile> Create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) = delete;
  ~AtomicFile();

  // Error kIo; says so when the disk is full.
  Status Write(std::span<const uint8_t> bytes);
  // The bytes are on disk (fsync) before the file has its name. Error kIo: it could not be written
  // out or renamed, and then the old file is as it was.
  Status Commit();

 private:
  AtomicFile() = default;
  Status WriteError(int error) const;
  std::string path_, partial_path_;
  int fd_ = -1;
};

}  // namespace qevict
