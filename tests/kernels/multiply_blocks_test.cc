#include "kernels/multiply_blocks/multiply_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/aligned_buffer.h"
#include "tests/kernels/attention_case.h"

namespace qevict {
namespace {

constexpr WeightFormat kFormats[] = {{4, false}, {4, true}, {5, false}, {5, true}};

// Random weights in a layout that this test fills by the header's words.
class WeightsCase {
 public:
  WeightsCase(WeightFormat format, size_t inputs, size_t tiles)
      : format_(format),
        inputs_(inputs),
        tiles_(tiles),
        layout_(LayOutTile(format, inputs)),
        weights_(AlignedBuffer::Allocate(tiles * layout_.bytes).value()),
        scratch_(AlignedBuffer::Allocate(MultiplyScratchBytes(inputs)).value()),
        levels_(tiles * kTileOutputs * inputs),
        scales_(tiles * kTileOutputs * groups()),
        minimums_(scales_.size()) {
    const std::vector<float> random = RandomQueries(3, levels_.size(), /*seed=*/5, 1.0f);
    const uint32_t codes = 1u << format.bits;
    for (size_t o = 0; o < outputs(); ++o) {
      for (size_t i = 0; i < inputs; ++i) {
        const float uniform = std::abs(random[o * inputs + i]) * 977.0f;
        SetCode(o, i, uint32_t(uniform) % codes);
      }
      for (size_t g = 0; g < groups(); ++g) {
        SetHalf(layout_.scales, o, g, random[levels_.size() + o * groups() + g], scales_);
        if (format.minimums)
          SetHalf(layout_.minimums, o, g, random[2 * levels_.size() + o * groups() + g], minimums_);
      }
    }
  }

  size_t outputs() const { return tiles_ * kTileOutputs; }
  size_t groups() const { return inputs_ / kWeightGroup; }
  // The weight of a group's input, and the sum of magnitudes that rounding errors follow.
  double Weight(size_t output, size_t input) const {
    const size_t at = output * groups() + input / kWeightGroup;
    return double(scales_[at]) * levels_[output * inputs_ + input] + double(minimums_[at]);
  }

  std::vector<float> Run(MultiplyBlocksFn run, const std::vector<float>& x, size_t rows,
                         const std::vector<float>* bias) const {
    const size_t stride = outputs() + 3;
    std::vector<float> y(rows * stride, 77.0f);
    run({.format = format_,
         .rows = rows,
         .inputs = inputs_,
         .tiles = tiles_,
         .x = x.data(),
         .weights = weights_.as<uint8_t>(),
         .bias = bias == nullptr ? nullptr : bias->data(),
         .y = y.data(),
         .y_stride = stride,
         .scratch = scratch_.as<uint8_t>()});
    std::vector<float> outputs_of_rows;
    for (size_t r = 0; r < rows; ++r) {
      for (size_t o = 0; o < 3; ++o)
        EXPECT_EQ(y[r * stride + outputs() + o], 77.0f) << "written past the outputs";
      outputs_of_rows.insert(outputs_of_rows.end(), y.begin() + ptrdiff_t(r * stride),
                             y.begin() + ptrdiff_t(r * stride + outputs()));
    }
    return outputs_of_rows;
  }

 private:
  uint8_t* Tile(size_t output) const {
    return weights_.as<uint8_t>() + output / kTileOutputs * layout_.bytes;
  }
  void SetCode(size_t output, size_t input, uint32_t code) {
    const size_t g = input / kWeightGroup, i = input % kWeightGroup, lane = output % kTileOutputs;
    uint8_t& nibbles = Tile(output)[((g * 4 + i % 16 / 4) * kTileOutputs + lane) * 4 + i % 4];
    nibbles = uint8_t(nibbles | (code & 15u) << (i < 16 ? 0 : 4));
    if (format_.bits == 5) {
      uint8_t& fifths = Tile(output)[layout_.fifths + (g * kTileOutputs + lane) * 4 + i % 4];
      fifths = uint8_t(fifths | (code >> 4) << i / 4);
    }
    levels_[output * inputs_ + i + g * kWeightGroup] =
        int(code) - (format_.minimums ? 0 : 1 << (format_.bits - 1));
  }
  void SetHalf(size_t part, size_t output, size_t group, float value, std::vector<float>& kept) {
    const F16 half = F32ToF16(value);
    std::memcpy(Tile(output) + part + (group * kTileOutputs + output % kTileOutputs) * sizeof half,
                &half, sizeof half);
    kept[output * groups() + group] = F16ToF32(half);
  }

  WeightFormat format_;
  size_t inputs_, tiles_;
  TileLayout layout_;
  AlignedBuffer weights_, scratch_;
  std::vector<int> levels_;
  std::vector<float> scales_, minimums_;
};

class MultiplyBlocksTest : public ::testing::TestWithParam<KernelVariant<MultiplyBlocksFn>> {
 protected:
  void SetUp() override { QEVICT_SKIP_WITHOUT(GetParam()); }
};

// Activations that are whole numbers up to 127 in every group lose nothing to int8.
TEST_P(MultiplyBlocksTest, ProductsOfWholeActivationsAreExactUpToTheSumsRounding) {
  for (const WeightFormat format : kFormats) {
    for (const size_t inputs : {32, 64, 96, 896}) {
      for (const size_t rows : {1, 2, 3, 4, 5, 8, 31, 32}) {
        const WeightsCase weights(format, inputs, /*tiles=*/3);
        std::vector<float> x = RandomQueries(rows, inputs, 9, 60.0f);
        for (size_t i = 0; i < x.size(); ++i)
          x[i] = i % kWeightGroup == 7 ? -127.0f : std::clamp(std::round(x[i]), -127.0f, 127.0f);
        const std::vector<float> bias = RandomQueries(1, weights.outputs(), 3, 1.0f);
        const std::vector<float> y = weights.Run(GetParam().run, x, rows, &bias);
        for (size_t r = 0; r < rows; ++r) {
          for (size_t o = 0; o < weights.outputs(); ++o) {
            double sum = bias[o], magnitude = std::abs(sum);
            for (size_t i = 0; i < inputs; ++i) {
              const double product = weights.Weight(o, i) * double(x[r * inputs + i]);
              sum += product;
              magnitude += std::abs(product) + 16.0 * std::abs(double(x[r * inputs + i]));
            }
            // Per group three roundings of a term that is at most the group's magnitude (the code's
            // offset, up to 16 scales, included), and one of the sum.
            const double tolerance = double(weights.groups() + 3) * 0x1p-24 * magnitude;
            ASSERT_NEAR(y[r * weights.outputs() + o], sum, tolerance)
                << format.bits << " bits, " << inputs << " inputs, row " << r << " of " << rows;
          }
        }
      }
    }
  }
}

TEST_P(MultiplyBlocksTest, RoundsActivationsAsTheScalarReferenceDoes) {
  for (const WeightFormat format : kFormats) {
    const size_t inputs = 256, rows = 7;
    const WeightsCase weights(format, inputs, /*tiles=*/2);
    std::vector<float> x = RandomQueries(rows, inputs, 11, 3.0f);
    for (size_t i = 0; i < kWeightGroup; ++i) x[i] = 0.0f;             // a group of zeros
    for (size_t i = 32; i < 64; ++i) x[i] = i % 2 == 0 ? 1e-38f : 0.0f;  // a tiny one
    x[70] = 300.0f;                                                    // one outlier
    const std::vector<float> expected = weights.Run(MultiplyBlocksVariants().back().run, x, rows, nullptr);
    const std::vector<float> actual = weights.Run(GetParam().run, x, rows, nullptr);
    for (size_t i = 0; i < actual.size(); ++i) {
      // The same integers; sums of 8 groups in another order of rounding.
      ASSERT_NEAR(actual[i], expected[i], 16 * 0x1p-24 * (std::abs(expected[i]) + 4e4))
          << format.bits << " bits, output " << i;
    }
  }
}

TEST_P(MultiplyBlocksTest, ARowsBitsDoNotDependOnTheRowsAroundIt) {
  for (const WeightFormat format : kFormats) {
    const size_t inputs = 96, rows = 7;
    const WeightsCase weights(format, inputs, /*tiles=*/1);
    const std::vector<float> x = RandomQueries(rows, inputs, 2, 3.0f);
    const std::vector<float> all = weights.Run(GetParam().run, x, rows, nullptr);
    for (size_t r = 0; r < rows; ++r) {
      const std::vector<float> row(x.begin() + ptrdiff_t(r * inputs),
                                   x.begin() + ptrdiff_t((r + 1) * inputs));
      const std::vector<float> alone = weights.Run(GetParam().run, row, 1, nullptr);
      ASSERT_EQ(std::memcmp(alone.data(), &all[r * weights.outputs()],
                            alone.size() * sizeof(float)),
                0);
    }
  }
}

TEST_P(MultiplyBlocksTest, ANumberThatIsNotFiniteMakesItsRowNaNAndNoOther) {
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    const size_t inputs = 64, rows = 5;
    const WeightsCase weights({5, false}, inputs, /*tiles=*/1);
    std::vector<float> x = RandomQueries(rows, inputs, 2, 3.0f);
    x[2 * inputs + 40] = bad;
    const std::vector<float> y = weights.Run(GetParam().run, x, rows, nullptr);
    for (size_t i = 0; i < y.size(); ++i)
      EXPECT_EQ(std::isnan(y[i]), i / weights.outputs() == 2) << "output " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, MultiplyBlocksTest, ::testing::ValuesIn(MultiplyBlocksVariants()),
                         VariantName<KernelVariant<MultiplyBlocksFn>>);

}  // namespace
}  // namespace qevict
