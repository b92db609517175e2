// One benchmark per variant of a kernel that this CPU has and shape.
#pragma once

#include <benchmark/benchmark.h>

#include <span>
#include <string>

#include "kernels/kernel_variant.h"

namespace qevict {

// check(variant, shape) ends the program when a result is wrong, before anything of the shape is
// measured; body(state, fn, shape, more...) measures. A shape has a `name`.
template <typename Fn, typename Shapes, typename Check, typename Body, typename... More>
void RegisterVariants(const std::string& kernel, std::span<const KernelVariant<Fn>> variants,
                      const Shapes& shapes, const Check& check, const Body& body,
                      const More&... more) {
  for (const KernelVariant<Fn>& variant : variants) {
    if (!CpuSupports(variant.isa)) continue;
    for (const auto& shape : shapes) {
      check(variant, shape);
      benchmark::RegisterBenchmark((kernel + "/" + variant.name + "/" + shape.name).c_str(), body,
                                   variant.run, shape, more...)
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace qevict
