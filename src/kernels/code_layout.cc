#include "kernels/code_layout.h"

#include "core/check.h"

namespace qevict {
namespace {

// Lloyd-Max levels of a Gaussian, scaled so that their rounding to integers costs less than 0.5 %
// of the mean squared error: 0.3634, 0.1175, 0.0349, 0.00967 (tests/kernels/code_layout_test.cc).
constexpr CodeLevels kLevels[] = {
    {{-1, 1}, 0.797885f, 1},
    {{-10, -3, 3, 10}, 0.151042f, 10},
    {{-8, -5, -3, -1, 1, 3, 5, 8}, 0.268993f, 8},
    {{-20, -15, -12, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 12, 15, 20}, 0.136629f, 20},
};

}  // namespace

const CodeLevels& LevelsOf(uint32_t bits) {
  QEVICT_CHECK(bits >= 1 && bits <= 4);
  return kLevels[bits - 1];
}

}  // namespace qevict
