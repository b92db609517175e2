// An operator new that counts and fails, of the programs that failing_new.cc is part of.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

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
