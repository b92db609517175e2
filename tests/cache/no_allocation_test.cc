// Attention runs on the threads of a model's graph, where a failed allocation would end the
// program: Bind makes all the room that it needs. A program of its own, because it replaces
// operator new.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "tests/cache/tiered_case.h"

namespace {
thread_local bool attends = false;
thread_local int allocations = 0;
}  // namespace

// Not inlined: the compiler would see free() of what came from operator new.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (attends) ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace qevict::test {
namespace {

TEST(NoAllocationTest, AttentionAllocatesNothingInPromptsStepsAndBothTiers) {
  for (const GroupMass group : {GroupMass::kMean, GroupMass::kMax}) {
    TieredCase sequence({.shape = SmallShape(32, /*swa=*/true),
                         .geometry = {.omega = 8, .sinks = 4, .local = 32},
                         .capacity = {.full = 6, .quantized = 140},
                         .capacity_tokens = 2400,
                         .max_batch_tokens = 96,
                         .scoring = {.prior_tokens = kAllTokens, .group = group},
                         .before_attend = [] { attends = true; },
                         .after_attend = [] { attends = false; }});
    allocations = 0;
    uint32_t codes = 0;
    for (uint32_t step = 0; step < 120; ++step) {
      sequence.Step(step < 12 ? 96 - step : step % 30 == 0 ? 60 : 1);
      ASSERT_EQ(allocations, 0) << "step " << step;
      codes = uint32_t(sequence.kv().windows(LayerId(1), KvHeadId(0)).attended().size());
    }
    EXPECT_GT(codes, 100u);
    // What counts does count.
    attends = true;
    const std::vector<int> something(3);
    attends = false;
    EXPECT_EQ(allocations, 1);
  }
}

}  // namespace
}  // namespace qevict::test
