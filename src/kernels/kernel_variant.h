// One list of variants per kernel feeds selection, tests and benchmarks.
#pragma once

#include <span>

#include "core/check.h"
#include "core/isa.h"

namespace qevict {

template <typename Fn>
struct KernelVariant {
  Isa isa;
  const char* name;
  Fn run;
};

// The fastest variant that does not exceed `isa`. Lists are ordered fastest first and end with the
// scalar reference. A level for which a kernel has no own variant falls to the next lower one of
// the same list.
template <typename Fn>
Fn SelectVariant(std::span<const KernelVariant<Fn>> variants, Isa isa) {
  for (const KernelVariant<Fn>& variant : variants) {
    if (variant.isa <= isa && CpuSupports(variant.isa)) return variant.run;
  }
  QEVICT_CHECK(!"a variant list ends with the scalar reference");
  return nullptr;
}

}  // namespace qevict
