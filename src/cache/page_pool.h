// Pages of codes for the heads of one sequence, cut from slabs that a byte budget pays for. A page
// that is given back serves the next who takes one; slabs live as long as the pool.
#pragma once

#include <cstdint>
#include <vector>

#include "core/aligned_buffer.h"
#include "qevict/byte_budget.h"

namespace qevict {

class PagePool {
 public:
  // page_bytes: a multiple of 64. `budget` must outlive the pool.
  PagePool(size_t page_bytes, uint32_t slab_pages, ByteBudget& budget)
      : page_bytes_(page_bytes), slab_pages_(slab_pages), budget_(budget) {}

  // Makes sure that `pages` pages can be taken. Errors kBudgetExceeded, kOutOfMemory; what was free
  // before stays so.
  Status Reserve(size_t pages);
  // 64-byte aligned; holds what was last written to it. Precondition: reserved.
  uint8_t* Take() noexcept;
  void Give(uint8_t* page) noexcept;

  size_t free_pages() const { return free_.size(); }
  uint64_t resident_bytes() const { return slabs_.size() * uint64_t{slab_bytes()}; }
  uint64_t used_bytes() const {  // of pages in use
    return (slabs_.size() * slab_pages_ - free_.size()) * uint64_t{page_bytes_};
  }

 private:
  size_t slab_bytes() const { return AlignedBuffer::RoundedBytes(slab_pages_ * page_bytes_); }

  struct Slab {
    ByteBudget::Claim claim;
    AlignedBuffer buffer;
  };
  size_t page_bytes_;
  uint32_t slab_pages_;
  ByteBudget& budget_;
  std::vector<Slab> slabs_;
  std::vector<uint8_t*> free_;  // has room for every page of every slab: giving back cannot fail
};

}  // namespace qevict
