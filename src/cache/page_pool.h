// Pages of codes for the heads of one sequence, cut from slabs that a byte budget pays for. The
// last slab has what is left of the pages that there may be. A page that is given back serves the
// next who takes one; slabs live as long as the pool.
#pragma once

#include <cstdint>
#include <vector>

#include "core/aligned_buffer.h"
#include "qevict/byte_budget.h"

namespace qevict {

class PagePool {
 public:
  struct Config {
    size_t page_bytes = 0;  // a multiple of 64
    uint32_t slab_pages = 0;
    uint64_t most_pages = 0;  // in use at once
  };
  // `budget` must outlive the pool.
  PagePool(const Config& config, ByteBudget& budget) : config_(config), budget_(budget) {}

  // Makes sure that `pages` pages can be taken, no more than the most, those in use included.
  // Errors kBudgetExceeded, kOutOfMemory; what was free before stays so, also when it throws
  // std::bad_alloc.
  Status Reserve(size_t pages);
  // 64-byte aligned; holds what was last written to it. Precondition: reserved.
  uint8_t* Take() noexcept;
  void Give(uint8_t* page) noexcept;

  size_t free_pages() const { return free_.size(); }
  uint64_t resident_bytes() const;
  uint64_t used_bytes() const {  // of pages in use
    return (pages_ - free_.size()) * uint64_t{config_.page_bytes};
  }

 private:
  struct Slab {
    ByteBudget::Claim claim;
    AlignedBuffer buffer;
  };
  Config config_;
  ByteBudget& budget_;
  uint64_t pages_ = 0;  // of all slabs
  std::vector<Slab> slabs_;
  std::vector<uint8_t*> free_;  // has room for every page of every slab: giving back cannot fail
};

}  // namespace qevict
