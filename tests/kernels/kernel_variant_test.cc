#include "kernels/kernel_variant.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "kernels/attend_codes/attend_codes.h"
#include "kernels/attend_decode/attend_decode.h"
#include "kernels/attend_prefill/attend_prefill.h"
#include "kernels/dot_rows/dot_rows.h"
#include "kernels/store_kv/store_kv.h"

namespace qevict {
namespace {

template <typename Fn>
const KernelVariant<Fn>& VariantOf(std::span<const KernelVariant<Fn>> variants, Fn run) {
  for (const KernelVariant<Fn>& variant : variants) {
    if (variant.run == run) return variant;
  }
  ADD_FAILURE() << "the selected function is not in the list";
  return variants.back();
}

template <typename Fn>
void ExpectFastestFirstAndScalarLast(std::span<const KernelVariant<Fn>> variants) {
  for (size_t i = 0; i + 1 < variants.size(); ++i) EXPECT_GT(variants[i].isa, variants[i + 1].isa);
  EXPECT_EQ(variants.back().isa, Isa::kScalar);
  for (const auto& variant : variants) EXPECT_EQ(variant.name, IsaName(variant.isa));
}

// Calls check(list) for every kernel's list of variants.
template <typename Check>
void ForEveryKernel(const Check& check) {
  check(AttendCodesVariants());
  check(AttendDecodeVariants());
  check(AttendPrefillVariants());
  check(DotRowsVariants());
  check(StoreKvVariants());
}

TEST(KernelVariantTest, EveryListIsOrderedFastestFirstAndEndsWithScalar) {
  ForEveryKernel([](const auto& variants) { ExpectFastestFirstAndScalarLast(variants); });
}

TEST(KernelVariantTest, EveryKernelHasAVariantForEveryLevelOfThisCpu) {
  ForEveryKernel([](const auto& variants) {
    for (Isa isa : SupportedIsas()) {
      EXPECT_EQ(VariantOf(variants, SelectVariant(variants, isa)).isa, isa);
    }
  });
}

TEST(KernelVariantTest, TheLevelForcedByTheEnvironmentIsTheOneThatRuns) {
  const char* outer = std::getenv("QEVICT_ISA");
  const std::string saved = outer ? outer : "";
  for (Isa isa : SupportedIsas()) {
    setenv("QEVICT_ISA", std::string(IsaName(isa)).c_str(), 1);
    const Isa selected = SelectIsa().value();
    EXPECT_EQ(
        VariantOf(AttendDecodeVariants(), SelectVariant(AttendDecodeVariants(), selected)).name,
        IsaName(isa));
  }
  outer ? setenv("QEVICT_ISA", saved.c_str(), 1) : unsetenv("QEVICT_ISA");
}

void Fast() {}
void Slow() {}

TEST(KernelVariantTest, AVariantThatThisCpuLacksIsNeverChosen) {
  // No CPU has both levels, so at most one of the two could run here.
  using Fn = void (*)();
  const KernelVariant<Fn> lists[][2] = {
      {{Isa::kNeon, "neon", Fast}, {Isa::kScalar, "scalar", Slow}},
      {{Isa::kAvx2, "avx2", Fast}, {Isa::kScalar, "scalar", Slow}}};
  for (const auto& list : lists) {
    const Fn run = SelectVariant(std::span<const KernelVariant<Fn>>(list), Isa::kAvx512);
    EXPECT_EQ(run, CpuSupports(list[0].isa) ? Fast : Slow);
  }
}

TEST(KernelVariantTest, ALevelWithoutAVariantOfItsOwnFallsToTheNextLower) {
  using Fn = void (*)();
  const KernelVariant<Fn> only_scalar[] = {{Isa::kScalar, "scalar", Slow}};
  for (Isa isa : SupportedIsas()) {
    EXPECT_EQ(SelectVariant(std::span<const KernelVariant<Fn>>(only_scalar), isa), Slow);
  }
}

}  // namespace
}  // namespace qevict
