#include "tests/support/failing_new.h"

#include <cstdlib>
#include <new>

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
