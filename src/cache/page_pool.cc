#include "cache/page_pool.h"

#include "core/check.h"

namespace qevict {

Status PagePool::Reserve(size_t pages) {
  while (free_.size() < pages) {
    QEVICT_ASSIGN_OR_RETURN(ByteBudget::Claim claim, budget_.Reserve(slab_bytes()));
    QEVICT_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::Allocate(slab_bytes()));
    free_.reserve((slabs_.size() + 1) * slab_pages_);
    for (uint32_t p = slab_pages_; p > 0; --p) {  // so that pages are taken in their order
      free_.push_back(buffer.as<uint8_t>() + (p - 1) * page_bytes_);
    }
    slabs_.push_back({std::move(claim), std::move(buffer)});
  }
  return {};
}

uint8_t* PagePool::Take() noexcept {
  QEVICT_CHECK(!free_.empty());
  uint8_t* page = free_.back();
  free_.pop_back();
  return page;
}

void PagePool::Give(uint8_t* page) noexcept { free_.push_back(page); }

}  // namespace qevict
