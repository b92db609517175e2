#include "kernels/dot_rows/dot_rows.h"

#include "tests/kernels/attention_case.h"

namespace qevict {
namespace {

class DotRowsTest : public ::testing::TestWithParam<KernelVariant<DotRowsFn>> {
 protected:
  void SetUp() override { QEVICT_SKIP_WITHOUT(GetParam()); }
};

TEST_P(DotRowsTest, EveryProductIsTheSumInDoubleWithinRounding) {
  for (size_t depth : {16, 48, 64, 80, 128, 256}) {
    for (size_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 16}) {
      for (size_t columns : {0, 1, 2, 3, 4, 5, 7, 8, 33}) {
        const std::vector<float> a = RandomQueries(rows, depth, 1, 8.0f);
        const std::vector<float> numbers = RandomQueries(columns + 1, depth, 2, 8.0f);
        // Backwards, so that rows of b lie in no order.
        std::vector<const float*> b;
        for (size_t i = 0; i < columns; ++i)
          b.push_back(numbers.data() + (columns - 1 - i) * depth);
        const size_t stride = columns + 3;
        std::vector<float> out(rows * stride, 77.0f);
        GetParam().run({.rows = rows,
                        .columns = columns,
                        .depth = depth,
                        .a = a.data(),
                        .b = b.data(),
                        .out = out.data(),
                        .out_stride = stride});
        for (size_t r = 0; r < rows; ++r) {
          for (size_t i = 0; i < stride; ++i) {
            if (i >= columns) {
              ASSERT_EQ(out[r * stride + i], 77.0f) << "written past the columns";
              continue;
            }
            double sum = 0.0, magnitude = 0.0;
            for (size_t c = 0; c < depth; ++c) {
              const double product = double(a[r * depth + c]) * double(b[i][c]);
              sum += product;
              magnitude += std::abs(product);
            }
            ASSERT_NEAR(out[r * stride + i], sum, double(depth) * 0x1p-24 * magnitude)
                << "depth " << depth << ", row " << r << " of " << rows << ", column " << i
                << " of " << columns;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, DotRowsTest, ::testing::ValuesIn(DotRowsVariants()),
                         VariantName<KernelVariant<DotRowsFn>>);

}  // namespace
}  // namespace qevict
