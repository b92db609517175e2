// Zeroed, page-aligned memory from the operating system, given back when the buffer dies. Each
// allocation is checked against what is available at that moment. That is no reservation: pages are
// taken when they are first written, so allocations that fit one by one may not fit together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "qevict/status.h"

namespace qevict {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Rounds up to whole pages; size_bytes() is what was handed out. Error kOutOfMemory.
  [[nodiscard]] static Result<AlignedBuffer> Allocate(size_t bytes);
  // What Allocate hands out for `bytes`: whole pages. Precondition: it fits into size_t.
  static size_t RoundedBytes(size_t bytes);
  // What the buffers of this process that are alive hold together.
  static uint64_t MappedBytes();
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    AlignedBuffer taken(std::move(other));
    std::swap(base_, taken.base_);
    std::swap(size_bytes_, taken.size_bytes_);
    return *this;
  }
  ~AlignedBuffer();

  template <typename T>
  T* as() const {
    return static_cast<T*>(base_);
  }
  size_t size_bytes() const { return size_bytes_; }

 private:
  void* base_ = nullptr;
  size_t size_bytes_ = 0;
};

// For tests: while it lives, the allocation after `allowed` others fails once, as if memory had run
// out. One at a time.
class FailingAllocation {
 public:
  explicit FailingAllocation(uint32_t allowed);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
  bool has_failed() const;
};

// Memory that this process can still take without swapping or being killed: the smaller of what the
// system has available and what its control groups leave it. UINT64_MAX when the system does not
// say.
uint64_t AvailableMemoryBytes();

}  // namespace qevict
