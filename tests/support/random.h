// Random numbers that are the same with every compiler and standard library.
#pragma once

#include <cstdint>

namespace qevict::test {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  // SplitMix64 (Steele, Lea and Flood, 2014).
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t Below(uint64_t limit) { return Next() % limit; }
  // Nearly normal, mean 0 and deviation 1: the sum of four uniform numbers, whose variance is 4/12
  // of their range squared.
  float Normal() {
    const uint64_t bits = Next();
    const float sum = float(bits & 0xffff) + float(bits >> 16 & 0xffff) +
                      float(bits >> 32 & 0xffff) + float(bits >> 48);
    return (sum / 65536.0f - 2.0f) * 1.7320508f;
  }

 private:
  uint64_t state_;
};

}  // namespace qevict::test
