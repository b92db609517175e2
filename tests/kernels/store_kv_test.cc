#include "kernels/store_kv/store_kv.h"

#include "tests/kernels/attention_case.h"

namespace qevict {
namespace {

class StoreKvTest : public ::testing::TestWithParam<KernelVariant<StoreKvFn>> {
 protected:
  void SetUp() override { QEVICT_SKIP_WITHOUT(GetParam()); }

  struct Stored {
    std::vector<F16> k, v;
  };
  struct Shape {
    size_t tokens, head_dim, slot, stride;
    size_t slots() const {  // that are written, in whole blocks
      return (slot + tokens + kKeyBlockTokens - 1) / kKeyBlockTokens * kKeyBlockTokens;
    }
  };
  static StoreKvArgs Rows(const Shape& shape, const std::vector<float>& k,
                          const std::vector<float>& v) {
    return {.tokens = shape.tokens,
            .head_dim = shape.head_dim,
            .k = k.data(),
            .v = v.data(),
            .k_stride = shape.stride,
            .v_stride = shape.stride,
            .slot = shape.slot};
  }
  static Stored Run(StoreKvFn run, const Shape& shape, const std::vector<float>& k,
                    const std::vector<float>& v) {
    const size_t slots = shape.slots();
    Stored stored{std::vector<F16>(slots * shape.head_dim, 0x5555),
                  std::vector<F16>(slots * shape.head_dim, 0x5555)};
    StoreKvArgs args = Rows(shape, k, v);
    args.k_out = stored.k.data();
    args.v_out = stored.v.data();
    run(args);
    return stored;
  }
  // The same as int8, with what the storage held before in all that is not written.
  struct StoredQ8 {
    std::vector<int8_t> k, v;
    std::vector<F16> k_scales, v_scales;
    bool operator==(const StoredQ8&) const = default;
  };
  static StoredQ8 RunQ8(StoreKvFn run, const Shape& shape, const std::vector<float>& k,
                        const std::vector<float>& v) {
    const size_t slots = shape.slots();
    StoredQ8 stored;
    for (auto* codes : {&stored.k, &stored.v}) codes->assign(slots * shape.head_dim, 0x55);
    for (auto* scales : {&stored.k_scales, &stored.v_scales})
      scales->assign(slots * Q8Groups(shape.head_dim), 0x5555);
    StoreKvArgs args = Rows(shape, k, v);
    args.k8_out = {stored.k.data(), stored.k_scales.data()};
    args.v8_out = {stored.v.data(), stored.v_scales.data()};
    run(args);
    return stored;
  }
  void ExpectSameQ8(const Shape& shape, const std::vector<float>& k, const std::vector<float>& v) {
    EXPECT_TRUE(RunQ8(GetParam().run, shape, k, v) ==
                RunQ8(StoreKvVariants().back().run, shape, k, v))
        << shape.tokens << " tokens of " << shape.head_dim << " channels from slot " << shape.slot;
  }
  static void ExpectSameBits(const std::vector<F16>& actual, const std::vector<F16>& expected) {
    for (size_t i = 0; i < expected.size(); ++i) {
      if (std::isnan(F16ToF32(expected[i]))) {
        EXPECT_TRUE(std::isnan(F16ToF32(actual[i])))
            << "at " << i;  // the payload is the CPU's choice
      } else {
        EXPECT_EQ(actual[i], expected[i]) << "at " << i;
      }
    }
  }
  void ExpectMatchesScalar(const Shape& shape, const std::vector<float>& k,
                           const std::vector<float>& v) {
    const Stored actual = Run(GetParam().run, shape, k, v);
    const Stored expected = Run(StoreKvVariants().back().run, shape, k, v);
    ExpectSameBits(actual.k, expected.k);
    ExpectSameBits(actual.v, expected.v);
  }
  // Stores `floats` as values and as keys of one head of 16 channels.
  void ExpectConvertsLikeScalar(std::vector<float> floats) {
    floats.resize((floats.size() + 15) / 16 * 16);
    ExpectMatchesScalar({floats.size() / 16, 16, 0, 16}, floats, floats);
  }
};

TEST_P(StoreKvTest, WritesTheSameBitsAsTheScalarReferenceAndNothingElse) {
  for (size_t head_dim : {16, 48, 64, 80, 128, 256}) {
    const size_t stride = 2 * head_dim + 8;
    const std::vector<float> k = RandomQueries(70, stride, 1, 30.0f),
                             v = RandomQueries(70, stride, 2, 30.0f);
    for (size_t tokens : {0, 1, 2, 15, 16, 17, 33, 64}) {
      for (size_t slot : {0, 1, 15, 16, 23})
        ExpectMatchesScalar({tokens, head_dim, slot, stride}, k, v);
    }
  }
}

TEST_P(StoreKvTest, EveryF16ValueSurvivesARoundTrip) {
  std::vector<float> floats;
  for (uint32_t h = 0; h < 0x10000; ++h) floats.push_back(F16ToF32(F16(h)));
  const Stored stored = Run(GetParam().run, {floats.size() / 16, 16, 0, 16}, floats, floats);
  for (uint32_t h = 0; h < 0x10000; ++h) {
    if (std::isnan(floats[h])) {
      EXPECT_TRUE(std::isnan(F16ToF32(stored.v[h]))) << h;
    } else {
      EXPECT_EQ(stored.v[h], h);
    }
  }
}

TEST_P(StoreKvTest, RandomBitPatternsConvertLikeTheScalarReference) {
  std::mt19937 rng(3);
  std::vector<float> floats(1 << 20);
  for (float& x : floats) x = std::bit_cast<float>(uint32_t(rng()));
  ExpectConvertsLikeScalar(floats);
}

TEST_P(StoreKvTest, ValuesAroundEveryRoundingBoundaryConvertLikeTheScalarReference) {
  std::vector<float> floats;
  for (uint32_t h = 0; h < 0x7c00;
       ++h) {  // halfway between two neighbours, and one unit to either side
    const float low = F16ToF32(F16(h)), high = h == 0x7bff ? 65536.0f : F16ToF32(F16(h + 1));
    const float middle = low + (high - low) / 2;
    for (float x : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1e30f)}) {
      floats.push_back(x);
      floats.push_back(-x);
    }
  }
  ExpectConvertsLikeScalar(floats);
}

TEST_P(StoreKvTest, FiniteValuesBeyondTheRangeSaturateAndInfinitiesStay) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> floats = {
      65504.0f, 65519.0f,  65520.0f, 65536.0f,  1e10f,  std::numeric_limits<float>::max(),
      -1e10f,   -65520.0f, infinity, -infinity, 1e-10f, -1e-45f};
  floats.resize(16);
  Stored stored = Run(GetParam().run, {1, 16, 0, 16}, floats, floats);
  stored.v.resize(16);
  const std::vector<F16> expected = {0x7bff, 0x7bff, 0x7bff, 0x7bff, 0x7bff, 0x7bff, 0xfbff, 0xfbff,
                                     0x7c00, 0xfc00, 0,      0x8000, 0,      0,      0,      0};
  EXPECT_EQ(stored.v, expected);
}

TEST_P(StoreKvTest, WritesTheSameInt8AsTheScalarReferenceAndNothingElse) {
  for (size_t head_dim : {16, 32, 48, 64, 80, 96, 128, 256}) {
    const size_t stride = 2 * head_dim + 8;
    const std::vector<float> k = RandomQueries(70, stride, 4, 30.0f),
                             v = RandomQueries(70, stride, 5, 30.0f);
    for (size_t tokens : {0, 1, 2, 15, 16, 17, 33, 64}) {
      for (size_t slot : {0, 1, 15, 16, 23}) ExpectSameQ8({tokens, head_dim, slot, stride}, k, v);
    }
  }
}

// Groups from every binade, those whose scale is subnormal, saturates or is NaN among them.
TEST_P(StoreKvTest, GroupsOfAnySizeBecomeTheSameInt8AsByTheScalarReference) {
  std::mt19937 rng(6);
  std::normal_distribution<float> normal;
  std::vector<float> rows;
  for (int exponent = -150; exponent <= 127; ++exponent) {
    for (size_t i = 0; i < 4 * 48; ++i) rows.push_back(std::ldexp(normal(rng), exponent));
  }
  for (size_t i = 0; i < 4096 * 48; ++i) {
    // Ratios that are halves of codes, where rounding decides.
    rows.push_back(i % 16 == 0 ? 127.0f : 0.5f * float(int(rng() % 509) - 254));
  }
  for (float x : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
                  -std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min()}) {
    for (size_t at : {0, 31, 32, 47}) {
      std::vector<float> row(48, 1.0f);
      row[at] = x;
      rows.insert(rows.end(), row.begin(), row.end());
    }
  }
  ExpectSameQ8({rows.size() / 48, 48, 0, 48}, rows, rows);
}

INSTANTIATE_TEST_SUITE_P(Levels, StoreKvTest, ::testing::ValuesIn(StoreKvVariants()),
                         VariantName<KernelVariant<StoreKvFn>>);

}  // namespace
}  // namespace qevict
