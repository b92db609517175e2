// Programmer errors end the process with both values printed. Nothing that a user can send may
// reach one.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace qevict::internal {

template <typename A, typename B>
[[noreturn]] void CheckFailed(const char* expression, const char* file, int line, const A& a,
                              const B& b) {
  std::ostringstream text;
  text << file << ":" << line << ": check failed: " << expression << " (" << a << " vs. " << b
       << ")\n";
  std::fputs(text.str().c_str(), stderr);
  std::abort();
}

}  // namespace qevict::internal

#define QEVICT_CHECK(condition)                                                     \
  do {                                                                              \
    if (!(condition))                                                               \
      ::qevict::internal::CheckFailed(#condition, __FILE__, __LINE__, true, false); \
  } while (false)
#define QEVICT_CHECK_OP(a, op, b)                                                       \
  do {                                                                                  \
    if (!((a)op(b)))                                                                    \
      ::qevict::internal::CheckFailed(#a " " #op " " #b, __FILE__, __LINE__, (a), (b)); \
  } while (false)
#define QEVICT_CHECK_EQ(a, b) QEVICT_CHECK_OP(a, ==, b)
#define QEVICT_CHECK_LE(a, b) QEVICT_CHECK_OP(a, <=, b)
#define QEVICT_CHECK_LT(a, b) QEVICT_CHECK_OP(a, <, b)

#ifdef NDEBUG
#define QEVICT_DCHECK(condition) \
  do {                           \
  } while (false && (condition))
#else
#define QEVICT_DCHECK(condition) QEVICT_CHECK(condition)
#endif
