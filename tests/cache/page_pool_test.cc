#include "cache/page_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace qevict {
namespace {

constexpr size_t kPageBytes = 1024;
constexpr uint32_t kSlabPages = 8;
const uint64_t kSlabBytes = AlignedBuffer::RoundedBytes(kSlabPages * kPageBytes);

constexpr uint32_t kMostPages = 4 * kSlabPages;

class PagePoolTest : public ::testing::Test {
 protected:
  ByteBudget budget_{3 * kSlabBytes};
  PagePool pool_{{.page_bytes = kPageBytes, .slab_pages = kSlabPages, .most_pages = kMostPages},
                 budget_};
};

TEST_F(PagePoolTest, NothingIsTakenBeforeItIsAskedFor) {
  EXPECT_TRUE(pool_.Reserve(0).ok());
  EXPECT_EQ(budget_.used_bytes(), 0u);
  EXPECT_EQ(pool_.resident_bytes(), 0u);
}

TEST_F(PagePoolTest, AReservationTakesAsManySlabsAsItNeedsBeyondFreePages) {
  const uint64_t before = AlignedBuffer::MappedBytes();
  ASSERT_TRUE(pool_.Reserve(kSlabPages + 1).ok());
  EXPECT_EQ(pool_.free_pages(), 2 * kSlabPages);
  ASSERT_TRUE(pool_.Reserve(2 * kSlabPages).ok());
  EXPECT_EQ(budget_.used_bytes(), 2 * kSlabBytes);
  EXPECT_EQ(pool_.resident_bytes(), 2 * kSlabBytes);
  EXPECT_EQ(AlignedBuffer::MappedBytes() - before, 2 * kSlabBytes);
  pool_.Take();
  ASSERT_TRUE(pool_.Reserve(2 * kSlabPages).ok());
  EXPECT_EQ(budget_.used_bytes(), 3 * kSlabBytes);
}

TEST_F(PagePoolTest, PagesAreAlignedApartFromOneAnotherAndComeInOrder) {
  ASSERT_TRUE(pool_.Reserve(2 * kSlabPages).ok());
  std::set<uint8_t*> pages;
  for (uint32_t i = 0; i < 2 * kSlabPages; ++i) {
    uint8_t* page = pool_.Take();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(page) % 64, 0u);
    std::fill_n(page, kPageBytes, uint8_t(i));
    EXPECT_TRUE(i % kSlabPages == 0 || pages.contains(page - kPageBytes));
    pages.insert(page);
  }
  EXPECT_EQ(pages.size(), 2 * kSlabPages);
  for (uint8_t* page : pages) EXPECT_EQ(std::count(page, page + kPageBytes, *page), kPageBytes);
  EXPECT_EQ(pool_.used_bytes(), 2 * kSlabPages * kPageBytes);
}

TEST_F(PagePoolTest, APageThatIsGivenBackServesTheNextWithoutAnotherSlab) {
  ASSERT_TRUE(pool_.Reserve(kSlabPages).ok());
  std::vector<uint8_t*> pages;
  for (uint32_t i = 0; i < kSlabPages; ++i) pages.push_back(pool_.Take());
  EXPECT_EQ(pool_.free_pages(), 0u);
  pool_.Give(pages[3]);
  EXPECT_EQ(pool_.used_bytes(), (kSlabPages - 1) * kPageBytes);
  ASSERT_TRUE(pool_.Reserve(1).ok());
  EXPECT_EQ(pool_.Take(), pages[3]);
  EXPECT_EQ(budget_.used_bytes(), kSlabBytes);
}

TEST_F(PagePoolTest, ABudgetThatIsSpentRefusesAndWhatWasFreeStaysSo) {
  ASSERT_TRUE(pool_.Reserve(3 * kSlabPages - 1).ok());
  pool_.Take();
  const Status status = pool_.Reserve(3 * kSlabPages);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kBudgetExceeded);
  EXPECT_EQ(pool_.free_pages(), 3 * kSlabPages - 1);
  EXPECT_EQ(budget_.used_bytes(), 3 * kSlabBytes);
}

TEST_F(PagePoolTest, MemoryThatRunsOutGivesTheBudgetBack) {
  ASSERT_TRUE(pool_.Reserve(1).ok());
  {
    const FailingAllocation failing(0);
    const Status status = pool_.Reserve(kSlabPages + 1);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
  }
  EXPECT_EQ(pool_.free_pages(), kSlabPages);
  EXPECT_EQ(budget_.used_bytes(), kSlabBytes);
  EXPECT_TRUE(pool_.Reserve(kSlabPages + 1).ok());
}

TEST(PagePoolLifeTest, ItsEndGivesEverythingBack) {
  ByteBudget budget(kSlabBytes);
  const uint64_t before = AlignedBuffer::MappedBytes();
  {
    PagePool pool({.page_bytes = kPageBytes, .slab_pages = kSlabPages, .most_pages = kMostPages},
                  budget);
    ASSERT_TRUE(pool.Reserve(1).ok());
    pool.Take();
    EXPECT_EQ(AlignedBuffer::MappedBytes() - before, kSlabBytes);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
  EXPECT_EQ(AlignedBuffer::MappedBytes(), before);
}

TEST(PagePoolLifeTest, TheLastSlabHasWhatIsLeftOfThePages) {
  ByteBudget budget(uint64_t{1} << 30);
  PagePool pool({.page_bytes = kPageBytes, .slab_pages = 8, .most_pages = 8 + 5}, budget);
  ASSERT_TRUE(pool.Reserve(9).ok());
  EXPECT_EQ(pool.free_pages(), 13u);
  EXPECT_EQ(budget.used_bytes(), kSlabBytes + AlignedBuffer::RoundedBytes(5 * kPageBytes));
  EXPECT_EQ(pool.resident_bytes(), budget.used_bytes());
  for (int i = 0; i < 13; ++i) pool.Take();
  EXPECT_EQ(pool.used_bytes(), 13 * kPageBytes);
}

}  // namespace
}  // namespace qevict
