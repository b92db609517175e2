// SIMD levels, what this CPU has, and the level that a user forces with QEVICT_ISA.
#pragma once

#include <string_view>
#include <vector>

#include "qevict/status.h"

namespace qevict {

// Ordered within an architecture: a greater level is faster and implies the lower ones.
enum class Isa {
  kScalar,  // portable C++, runs anywhere
  kNeon,    // aarch64: NEON with dot product (Armv8.2-A)
  kAvx2,    // x86-64: AVX2 + FMA + F16C + BMI2 (Haswell, Zen 1 and later)
  kAvx512,  // x86-64: AVX-512 F/BW/DQ/VL/CD, VNNI, VBMI, BF16 (Zen 4, Sapphire Rapids and later)
};

std::string_view IsaName(Isa isa);  // "scalar", "neon", "avx2", "avx512": the values of QEVICT_ISA
bool CpuSupports(Isa isa);
std::vector<Isa> SupportedIsas();  // fastest first; ends with kScalar

// The level that kernels use: QEVICT_ISA when it is set, else the fastest this CPU has.
// Error kInvalidArgument: QEVICT_ISA names no level or one that this CPU lacks; the message lists
// those it has.
[[nodiscard]] Result<Isa> SelectIsa();

}  // namespace qevict
