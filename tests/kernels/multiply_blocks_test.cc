#include "kernels/multiply_blocks/multiply_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "core/aligned_buffer.h"
#include "tests/kernels/attention_case.h"

namespace qevict {
namespace {

// Random weights in a layout that this test fills by the header's words.
class WeightsCase {
 public:
  WeightsCase(WeightFormat format, size_t inputs, size_t tiles)
      : format_(format),
        inputs_(inputs),
        tiles_(tiles),
        layout_(LayOutTile(format)),
        weights_(AlignedBuffer::Allocate(tiles * TileBytes(format, inputs)).value()),
        scratch_(AlignedBuffer::Allocate(MultiplyScratchBytes(inputs)).value()),
        levels_(tiles * kTileOutputs * inputs),
        scales_(levels_.size() / 16),
        minimums_(levels_.size() / 16) {
    for (size_t o = 0; o < outputs(); ++o) {
      for (size_t i = 0; i < inputs; ++i) SetCode(o, i, uint32_t(random_()) % (1u << format.bits));
      SetNumbers(o, 0, layout_.scales, scales_);
      if (format.minimums) SetNumbers(o, kFactorBytes, layout_.minimums, minimums_);
    }
  }

  size_t outputs() const { return tiles_ * kTileOutputs; }
  size_t groups() const { return inputs_ / kWeightGroup; }
  double Scale(size_t output, size_t input) const {
    return double(scales_[(output * inputs_ + input) / 16]);
  }
  double Weight(size_t output, size_t input) const {
    const size_t at = output * inputs_ + input;
    return Scale(output, input) * levels_[at] + double(minimums_[at / 16]);
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
    return weights_.as<uint8_t>() + output / kTileOutputs * TileBytes(format_, inputs_);
  }
  void SetCode(size_t output, size_t input, uint32_t code) {
    const size_t group = input / kWeightGroup, i = input % kWeightGroup, v = i / 4;
    const auto put = [&](size_t part, size_t vector, uint32_t bits) {
      uint8_t& byte = Tile(output)[layout_.Group(group) + part +
                                   (vector * kTileOutputs + output % kTileOutputs) * 4 + i % 4];
      byte = uint8_t(byte | bits);
    };
    if (format_.bits == 8) {
      put(0, v, code);
    } else {
      put(0, v % 4, (code & 15u) << (i < 16 ? 0 : 4));
    }
    if (format_.bits == 5) put(layout_.tops, 0, code >> 4 << v);
    if (format_.bits == 6) put(layout_.tops, v / 4, code >> 4 << (v % 4 * 2));
    levels_[output * inputs_ + input] =
        int(code) - (format_.minimums ? 0 : 1 << (format_.bits - 1));
  }
  // Random numbers for an output's groups; kept: per 16 inputs.
  void SetNumbers(size_t output, size_t factors, size_t numbers, std::vector<float>& kept) {
    std::normal_distribution<float> normal;
    const size_t lane = output % kTileOutputs;
    float factor = 1.0f;
    for (size_t h = 0; h < inputs_ / 16; ++h) {
      uint8_t* group = Tile(output) + layout_.Group(h / 2);
      const auto put_half = [&](uint8_t* at) {
        const F16 half = F32ToF16(normal(random_));
        std::memcpy(at + lane * sizeof half, &half, sizeof half);
        return F16ToF32(half);
      };
      float& number = kept[output * (inputs_ / 16) + h];
      if (h % 16 == 0 && format_.scales != Scales::kGroup)
        factor = put_half(Tile(output) + layout_.Super(h / 2) + factors);
      if (format_.scales == Scales::kSuperHalf) {
        const auto code = int8_t(random_());
        group[numbers + h % 2 * kTileOutputs + lane] = uint8_t(code);
        number = factor * float(code);
      } else if (h % 2 != 0) {
        number = *(&number - 1);
      } else if (format_.scales == Scales::kSuperGroup) {
        const auto code = uint8_t(random_() % 64);
        group[numbers + lane] = code;
        number = factor * float(code);
      } else {
        number = put_half(group + numbers);
      }
    }
  }

  std::mt19937 random_{5};
  WeightFormat format_;
  size_t inputs_, tiles_;
  TileLayout layout_;
  AlignedBuffer weights_, scratch_;
  std::vector<int> levels_;               // [outputs, inputs]
  std::vector<float> scales_, minimums_;  // [outputs, inputs / 16]
};

class MultiplyBlocksTest : public ::testing::TestWithParam<KernelVariant<MultiplyBlocksFn>> {
 protected:
  void SetUp() override { QEVICT_SKIP_WITHOUT(GetParam()); }
};

// Activations that are whole numbers up to 127 in every group lose nothing to int8.
TEST_P(MultiplyBlocksTest, ProductsOfWholeActivationsAreExactUpToTheSumsRounding) {
  for (const WeightFormat format : kWeightFormats) {
    for (const size_t inputs : {32, 64, 96, 256, 768}) {
      if (inputs % kWeightSuper != 0 && format.scales != Scales::kGroup) continue;
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
              const double row_input = double(x[r * inputs + i]);
              sum += weights.Weight(o, i) * row_input;
              // An unsigned code is up to 2^bits.
              magnitude += (std::abs(weights.Weight(o, i)) +
                            std::ldexp(std::abs(weights.Scale(o, i)), int(format.bits))) *
                           std::abs(row_input);
            }
            // Per group some roundings of terms that are at most the group's magnitude, and one of
            // the sum.
            const double tolerance = double(weights.groups() + 5) * 0x1p-24 * magnitude;
            ASSERT_NEAR(y[r * weights.outputs() + o], sum, tolerance)
                << format.bits << " bits, " << inputs << " inputs, row " << r << " of " << rows;
          }
        }
      }
    }
  }
}

TEST_P(MultiplyBlocksTest, RoundsActivationsAsTheScalarReferenceDoes) {
  for (const WeightFormat format : kWeightFormats) {
    const size_t inputs = 256, rows = 7;
    const WeightsCase weights(format, inputs, /*tiles=*/2);
    std::vector<float> x = RandomQueries(rows, inputs, 11, 3.0f);
    for (size_t i = 0; i < kWeightGroup; ++i) x[i] = 0.0f;               // a group of zeros
    for (size_t i = 32; i < 64; ++i) x[i] = i % 2 == 0 ? 1e-38f : 0.0f;  // a tiny one
    x[70] = 300.0f;                                                      // one outlier
    const std::vector<float> expected =
        weights.Run(MultiplyBlocksVariants().back().run, x, rows, nullptr);
    const std::vector<float> actual = weights.Run(GetParam().run, x, rows, nullptr);
    for (size_t i = 0; i < actual.size(); ++i) {
      // The same integers; sums of 8 groups in another order of rounding. Terms are below 2e6.
      ASSERT_NEAR(actual[i], expected[i], 16 * 0x1p-24 * 2e6)
          << format.bits << " bits, output " << i;
    }
  }
}

TEST_P(MultiplyBlocksTest, ARowsBitsDoNotDependOnTheRowsAroundIt) {
  for (const WeightFormat format : kWeightFormats) {
    const size_t inputs = 256, rows = 7;
    const WeightsCase weights(format, inputs, /*tiles=*/1);
    const std::vector<float> x = RandomQueries(rows, inputs, 2, 3.0f);
    const std::vector<float> all = weights.Run(GetParam().run, x, rows, nullptr);
    for (size_t r = 0; r < rows; ++r) {
      const std::vector<float> row(x.begin() + ptrdiff_t(r * inputs),
                                   x.begin() + ptrdiff_t((r + 1) * inputs));
      const std::vector<float> alone = weights.Run(GetParam().run, row, 1, nullptr);
      ASSERT_EQ(
          std::memcmp(alone.data(), &all[r * weights.outputs()], alone.size() * sizeof(float)), 0);
    }
  }
}

TEST_P(MultiplyBlocksTest, ANumberThatIsNotFiniteMakesItsRowNaNAndNoOther) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const size_t inputs = 64, rows = 5;
    const WeightsCase weights(kQ50, inputs, /*tiles=*/1);
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
