#include "core/aligned_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <string>

#include "core/control_group.h"

namespace qevict {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();
constexpr size_t kHugePageBytes = size_t{2} << 20;

std::atomic<uint64_t> mapped_bytes{0};
// Allocations until one fails; nobody counts below zero.
std::atomic<int64_t> allocations_left{-1};

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

size_t AlignedBuffer::RoundedBytes(size_t bytes) {
  const size_t page_bytes = size_t(sysconf(_SC_PAGESIZE));
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

uint64_t AlignedBuffer::MappedBytes() { return mapped_bytes.load(std::memory_order_relaxed); }

FailingAllocation::FailingAllocation(uint32_t allowed) { allocations_left = allowed; }
FailingAllocation::~FailingAllocation() { allocations_left = -1; }
bool FailingAllocation::has_failed() const { return allocations_left < 0; }

Result<AlignedBuffer> AlignedBuffer::Allocate(size_t bytes) {
  AlignedBuffer buffer;
  if (bytes == 0) return buffer;
  if (bytes > std::numeric_limits<size_t>::max() / 2) {
    return Fail(ErrorCode::kOutOfMemory, "a buffer of more bytes than addresses was asked for");
  }
  const size_t rounded = RoundedBytes(bytes);
  const uint64_t available = AvailableMemoryBytes();
  const bool refused = rounded > available || (allocations_left >= 0 && allocations_left-- == 0);
  void* base =
      refused ? MAP_FAILED
              : mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    // Less is there, or this process may not have more (ulimit -v).
    const std::string needed = std::to_string(rounded >> 20) + " MiB of memory are needed but ";
    return Fail(
        ErrorCode::kOutOfMemory,
        needed + (rounded > available ? std::to_string(available >> 20) + " MiB are available"
                                      : "the system refuses them to this process (see ulimit -v)"));
  }
  // Attention streams these bytes every step; huge pages keep the TLB out of its way.
  if (rounded >= kHugePageBytes) madvise(base, rounded, MADV_HUGEPAGE);
  buffer.base_ = base;
  buffer.size_bytes_ = rounded;
  mapped_bytes.fetch_add(rounded, std::memory_order_relaxed);
  return buffer;
}

AlignedBuffer::~AlignedBuffer() {
  if (base_ == nullptr) return;
  munmap(base_, size_bytes_);
  mapped_bytes.fetch_sub(size_bytes_, std::memory_order_relaxed);
}

}  // namespace qevict
