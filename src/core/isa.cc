#include "core/isa.h"

#include <array>
#include <cstdlib>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace qevict {
namespace {

constexpr std::array kIsas = {Isa::kAvx512, Isa::kAvx2, Isa::kNeon, Isa::kScalar};

#if defined(__x86_64__)
// clang 14, which lints this file, does not know "f16c" as a name for __builtin_cpu_supports.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

}  // namespace

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kNeon:
      return "neon";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

bool CpuSupports(Isa isa) {
  if (isa == Isa::kScalar) return true;
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c() &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  if (isa == Isa::kAvx2) return avx2;
  if (isa == Isa::kAvx512) {
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bf16");
  }
#elif defined(__aarch64__) && defined(__linux__)
  if (isa == Isa::kNeon) return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#endif
  return false;
}

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> supported;
  for (Isa isa : kIsas) {
    if (CpuSupports(isa)) supported.push_back(isa);
  }
  return supported;
}

Result<Isa> SelectIsa() {
  const std::vector<Isa> supported = SupportedIsas();
  const char* forced = std::getenv("QEVICT_ISA");
  if (forced == nullptr || *forced == '\0') return supported.front();
  std::string names;
  for (Isa isa : supported) {
    if (IsaName(isa) == forced) return isa;
    names += (names.empty() ? "" : ", ") + std::string(IsaName(isa));
  }
  return Fail(ErrorCode::kInvalidArgument, "QEVICT_ISA=" + std::string(forced) +
                                               " is not a SIMD level of this CPU; use one of " +
                                               names);
}

}  // namespace qevict
