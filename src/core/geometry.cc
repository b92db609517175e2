#include "core/geometry.h"

#include <string>

namespace qevict {
namespace {

constexpr uint32_t kMaxOmega = 64, kMaxSinks = 1024, kMaxLocal = 1u << 20;

Status CheckRange(const char* flag, uint32_t value, uint32_t low, uint32_t high) {
  if (value >= low && value <= high) return {};
  return Fail(ErrorCode::kInvalidArgument, std::string(flag) + " " + std::to_string(value) +
                                               " is not in " + std::to_string(low) + " .. " +
                                               std::to_string(high));
}

}  // namespace

Status Geometry::Validate() const {
  QEVICT_RETURN_IF_ERROR(CheckRange("--window", omega, 1, kMaxOmega));
  QEVICT_RETURN_IF_ERROR(CheckRange("--sinks", sinks, 0, kMaxSinks));
  return CheckRange("--local", local, 1, kMaxLocal);
}

}  // namespace qevict
