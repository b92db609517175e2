// Reads one member of a zip archive (a Python wheel is one) in pieces, without holding it whole.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "qevict/status.h"

namespace qevict {

// An error from it ends the reading and comes back.
using BytesFn = std::function<Status(std::span<const uint8_t>)>;

// Errors: kBadFile (not a zip, truncated, no such member, wrong checksum), kNotFound, kIo.
Status ReadZipMember(const std::string& path, std::string_view member, const BytesFn& on_bytes);

}  // namespace qevict
