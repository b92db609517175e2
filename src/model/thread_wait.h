// How ggml's threads wait for each other. They meet at a barrier after every operation, hundreds of
// times a token, and GCC's OpenMP spins there for milliseconds by default: right on idle cores, but
// where another program has one of them, two threads share a core and each barrier lasts until the
// scheduler takes the spinning one off (docs/decisions/0005-how-threads-wait.md).
#pragma once

namespace qevict {

inline constexpr char kSpinVariable[] = "GOMP_SPINCOUNT";
inline constexpr char kBoundedSpins[] = "700";
inline constexpr char kDefaultSpins[] = "300000";  // OpenMP's own

// OpenMP reads its variables before main, so the program is started again with kSpinVariable set;
// at the beginning of main, before any thread exists. Returns when it already is (or
// OMP_WAIT_POLICY), or when this system cannot start a program twice, and then nothing has changed.
void BoundThreadSpinning(char** argv);

}  // namespace qevict
