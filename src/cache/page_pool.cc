#include "cache/page_pool.h"

#include <algorithm>

#include "core/check.h"

namespace qevict {

Status PagePool::Reserve(size_t pages) {
  while (free_.size() < pages) {
    QEVICT_CHECK_LT(pages_, config_.most_pages);
    const size_t count = std::min<uint64_t>(config_.slab_pages, config_.most_pages - pages_);
    const size_t bytes = AlignedBuffer::RoundedBytes(count * config_.page_bytes);
    QEVICT_ASSIGN_OR_RETURN(ByteBudget::Claim claim, budget_.Reserve(bytes));
    QEVICT_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::Allocate(bytes));
    // What may throw comes before the first page: pages of a slab that nobody keeps would be lost.
    slabs_.reserve((config_.most_pages + config_.slab_pages - 1) / config_.slab_pages);
    free_.reserve(pages_ + count);
    for (size_t p = count; p > 0; --p) {  // so that pages are taken in their order
      free_.push_back(buffer.as<uint8_t>() + (p - 1) * config_.page_bytes);
    }
    slabs_.push_back({std::move(claim), std::move(buffer)});
    pages_ += count;
  }
  return {};
}

uint64_t PagePool::resident_bytes() const {
  uint64_t bytes = 0;
  for (const Slab& slab : slabs_) bytes += slab.buffer.size_bytes();
  return bytes;
}

uint8_t* PagePool::Take() noexcept {
  QEVICT_CHECK(!free_.empty());
  uint8_t* page = free_.back();
  free_.pop_back();
  return page;
}

void PagePool::Give(uint8_t* page) noexcept { free_.push_back(page); }

}  // namespace qevict
