#include "core/aligned_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "core/control_group.h"

namespace qevict {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();
constexpr size_t kHugePageBytes = size_t{2} << 20;

uint64_t MemAvailableBytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string key; file >> key;) {
    uint64_t kib = 0;
    if (key == "MemAvailable:" && file >> kib) return kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return kUnknown;
}

}  // namespace

uint64_t AvailableMemoryBytes() { return std::min(MemAvailableBytes(), ControlGroupFreeBytes()); }

Result<AlignedBuffer> AlignedBuffer::Allocate(size_t bytes) {
  AlignedBuffer buffer;
  if (bytes == 0) return buffer;
  const size_t page_bytes = size_t(sysconf(_SC_PAGESIZE));
  if (bytes > std::numeric_limits<size_t>::max() - page_bytes) {
    return Fail(ErrorCode::kOutOfMemory, "a buffer of more bytes than addresses was asked for");
  }
  const size_t rounded = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  const uint64_t available = AvailableMemoryBytes();
  void* base = rounded > available ? MAP_FAILED
                                   : mmap(nullptr, rounded, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    return Fail(
        ErrorCode::kOutOfMemory,
        std::to_string(rounded >> 20) + " MiB of memory are needed but " +
            (available == kUnknown ? "were refused"
                                   : std::to_string(available >> 20) + " MiB are available"));
  }
  // Attention streams these bytes every step; huge pages keep the TLB out of its way.
  if (rounded >= kHugePageBytes) madvise(base, rounded, MADV_HUGEPAGE);
  buffer.base_ = base;
  buffer.size_bytes_ = rounded;
  return buffer;
}

AlignedBuffer::~AlignedBuffer() {
  if (base_ != nullptr) munmap(base_, size_bytes_);
}

}  // namespace qevict
