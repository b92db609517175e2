#include "core/aligned_buffer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

namespace qevict {
namespace {

bool IsMapped(void* page) {
  unsigned char resident = 0;
  return mincore(page, size_t(sysconf(_SC_PAGESIZE)), &resident) == 0 || errno != ENOMEM;
}

TEST(AlignedBufferTest, WholePagesOfZerosAreHandedOut) {
  const AlignedBuffer buffer = AlignedBuffer::Allocate(1).value();
  const size_t page_bytes = size_t(sysconf(_SC_PAGESIZE));
  ASSERT_EQ(buffer.size_bytes(), page_bytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.as<char>()) % page_bytes, 0u);
  for (size_t i = 0; i < page_bytes; ++i) ASSERT_EQ(buffer.as<char>()[i], 0);
}

TEST(AlignedBufferTest, MoreThanIsAvailableIsRefused) {
  for (const size_t bytes : {size_t{1} << 60, std::numeric_limits<size_t>::max()}) {
    const auto buffer = AlignedBuffer::Allocate(bytes);
    ASSERT_FALSE(buffer);
    EXPECT_EQ(buffer.error().code, ErrorCode::kOutOfMemory);
  }
}

TEST(AlignedBufferTest, ReplacingABufferGivesItsMemoryBackAtOnce) {
  AlignedBuffer buffer = AlignedBuffer::Allocate(1).value();
  AlignedBuffer other = AlignedBuffer::Allocate(1).value();
  char* const old = buffer.as<char>();
  char* const kept = other.as<char>();
  ASSERT_TRUE(IsMapped(old));
  buffer = std::move(other);
  EXPECT_FALSE(IsMapped(old)) << "although the moved-from buffer still lives";
  EXPECT_EQ(buffer.as<char>(), kept);
  EXPECT_TRUE(IsMapped(kept));
}

}  // namespace
}  // namespace qevict
