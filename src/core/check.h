// Programmer errors end the process; a comparison prints both values. No user input may reach one.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace qevict::internal {

[[noreturn]] inline void CheckFailed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, expression);
  std::abort();
}

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

#define QEVICT_CHECK(condition)                                                        \
  do {                                                                                 \
    if (!(condition)) ::qevict::internal::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (false)
// Each side is evaluated once, also when the check fails and prints it.
#define QEVICT_CHECK_OP(a, op, b)                                                            \
  do {                                                                                       \
    const auto& qevict_check_a = (a);                                                        \
    const auto& qevict_check_b = (b);                                                        \
    if (!(qevict_check_a op qevict_check_b))                                                 \
      ::qevict::internal::CheckFailed(#a " " #op " " #b, __FILE__, __LINE__, qevict_check_a, \
                                      qevict_check_b);                                       \
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
