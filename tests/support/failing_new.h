// An operator new that counts and fails, of the program whose one source includes this.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <new>

#include "qevict/status.h"

namespace qevict::test {

// Of the thread that asks.
inline thread_local bool counts = false;
inline thread_local int allocations = 0;
inline thread_local int64_t until_failure = -1;  // allocations; nobody counts below zero

inline bool FailsNow() {
  if (counts) ++allocations;
  return until_failure >= 0 && until_failure-- == 0;
}

// Makes `call` again and again, each time with another of its allocations failing, until none is
// left that has not failed. Returns how many calls did.
template <typename Call, typename Check>
uint32_t FailEveryAllocation(const Call& call, const Check& check) {
  uint32_t failures = 0;
  for (int64_t allowed = 0;; ++allowed) {
    until_failure = allowed;
    const Status status = call();
    const bool reached = until_failure < 0;
    until_failure = -1;
    if (!reached) return failures;
    if (status.ok()) continue;  // one that could do without: streams swallow what they throw
    ++failures;
    EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory) << status.error().message;
    check();
  }
}

}  // namespace qevict::test

// Not inlined: the compiler would complain of a free behind its own new.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (qevict::test::FailsNow()) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
// What std::stable_sort asks for, and does without when there is none.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return qevict::test::FailsNow() ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
