#include "kernels/attend_decode/attend_decode.h"

#include "tests/kernels/attention_case.h"

namespace qevict {
namespace {

// Of a KvCase that a test has set up in f16, what the tier holds is tested in both types.
class AttendDecodeTest : public ::testing::TestWithParam<KernelVariant<AttendDecodeFn>> {
 protected:
  void SetUp() override { QEVICT_SKIP_WITHOUT(GetParam()); }

  struct Range {
    size_t begin, end;
  };
  static StateCase Run(AttendDecodeFn run, const KvCase& kv, const std::vector<float>& q,
                       Range range) {
    StateCase state(q.size() / kv.head_dim(), kv.head_dim());
    for (float* array : {state.m.data(), state.d.data()})
      std::fill_n(array, state.rows, 123.0f);  // must be overwritten
    std::fill(state.o.begin(), state.o.end(), 123.0f);
    run({.group = state.rows,
         .head_dim = kv.head_dim(),
         .q = q.data(),
         .kv = kv.view(),
         .begin = range.begin,
         .end = range.end,
         .state = state.state()});
    return state;
  }
  void ExpectMatchesScalar(const KvCase& kv, const std::vector<float>& q, Range range) {
    ExpectSame(kv, q, range);
    SCOPED_TRACE("q8");
    ExpectSame(kv.As(KvType::kQ8), q, range);
  }
  void ExpectWeights(const KvCase& kv, const std::vector<float>& q, Range range) {
    const size_t head_dim = kv.head_dim(), group = q.size() / head_dim, stride = kv.slots() + 6;
    std::vector<float> weights(group * stride, -1.0f);
    StateCase state(group, head_dim);
    GetParam().run({.group = group,
                    .head_dim = head_dim,
                    .q = q.data(),
                    .kv = kv.view(),
                    .begin = range.begin,
                    .end = range.end,
                    .state = state.state(),
                    .weights = weights.data(),
                    .weight_stride = stride});
    for (size_t r = 0; r < group; ++r) {
      const float* row = q.data() + r * head_dim;
      const float tolerance = 3.0f * (std::expm1(2.0f * ScoreTolerance(row, kv)) + 4e-7f);
      for (size_t i = 0; i < stride; ++i) {
        const float weight = weights[r * stride + i];
        if (i >= range.end - range.begin) {
          ASSERT_EQ(weight, -1.0f) << "written past the range, row " << r << " token " << i;
          continue;
        }
        float score = 0.0f;
        for (size_t c = 0; c < head_dim; ++c) score += row[c] * kv.Key(range.begin + i, c);
        ASSERT_NEAR(weight, std::exp(score - state.m[r]), tolerance)
            << "group " << group << " row " << r << " token " << i;
      }
    }
  }
  void ExpectSame(const KvCase& kv, const std::vector<float>& q, Range range) {
    SCOPED_TRACE("head_dim " + std::to_string(kv.head_dim()) + ", group " +
                 std::to_string(q.size() / kv.head_dim()) + ", slots [" +
                 std::to_string(range.begin) + ", " + std::to_string(range.end) + ")");
    StateCase actual = Run(GetParam().run, kv, q, range);
    StateCase expected = Run(AttendDecodeVariants().back().run, kv, q, range);
    ExpectSameAttention(actual, expected, q.data(), kv);
  }
};

TEST_P(AttendDecodeTest, MatchesScalarReferenceForEveryHeadDimAndGroup) {
  for (size_t head_dim : {16, 32, 48, 64, 80, 96, 112, 128, 192, 256}) {
    const KvCase kv = KvCase::Random(301, head_dim, 1);
    for (size_t group : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 32, 64}) {
      ExpectMatchesScalar(kv, RandomQueries(group, head_dim, 2), {0, 301});
    }
  }
}

TEST_P(AttendDecodeTest, MatchesScalarReferenceForEveryAlignmentOfTheRange) {
  const KvCase kv = KvCase::Random(200, 64, 3);
  const std::vector<float> q = RandomQueries(7, 64, 4);
  for (size_t begin : {0, 1, 15, 16, 17, 63, 64, 65, 100}) {
    for (size_t length : {1, 2, 15, 16, 17, 31, 47, 63, 64, 65, 80, 100}) {
      ExpectMatchesScalar(kv, q, {begin, begin + length});
    }
  }
}

TEST_P(AttendDecodeTest, AnEmptyRangeGivesTheEmptyState) {
  const KvCase kv = KvCase::Random(32, 64, 5);
  ExpectMatchesScalar(kv, RandomQueries(7, 64, 6), {0, 0});
  ExpectMatchesScalar(kv, RandomQueries(7, 64, 6), {17, 17});
}

TEST_P(AttendDecodeTest, OneTokenGivesItsValueExactly) {
  const std::vector<float> q = RandomQueries(5, 80, 8);
  for (const KvType type : {KvType::kF16, KvType::kQ8}) {
    const KvCase kv = KvCase::Random(40, 80, 7).As(type);
    const StateCase state = Run(GetParam().run, kv, q, {23, 24});
    for (size_t r = 0; r < 5; ++r) {
      EXPECT_EQ(state.d[r], 1.0f);
      for (size_t c = 0; c < 80; ++c) EXPECT_EQ(state.o[r * 80 + c], kv.Value(23, c));
    }
  }
}

TEST_P(AttendDecodeTest, TokensOutsideTheRangeHaveNoInfluence) {
  const std::vector<float> q = RandomQueries(3, 48, 10);
  for (const KvType type : {KvType::kF16, KvType::kQ8}) {
    KvCase kv = KvCase::Random(96, 48, 9);
    const StateCase before = Run(GetParam().run, kv.As(type), q, {21, 70});
    for (size_t t = 0; t < 96; ++t) {
      if (t >= 21 && t < 70) continue;
      for (size_t c = 0; c < 48; ++c) {
        kv.SetKey(t, c, t % 2 ? 6e4f : -6e4f);
        kv.SetValue(t, c, std::numeric_limits<float>::infinity());  // as int8: the scale is NaN
      }
    }
    const StateCase after = Run(GetParam().run, kv.As(type), q, {21, 70});
    EXPECT_EQ(after.m, before.m);
    EXPECT_EQ(after.d, before.d);
    EXPECT_EQ(after.o, before.o);
  }
}

TEST_P(AttendDecodeTest, IdenticalKeysGiveTheMeanOfTheValues) {
  KvCase kv = KvCase::Random(130, 64, 11);
  for (size_t t = 0; t < 130; ++t) {
    for (size_t c = 0; c < 64; ++c) kv.SetKey(t, c, 0.25f * float(c % 5));
  }
  const std::vector<float> q = RandomQueries(7, 64, 12);
  ExpectMatchesScalar(kv, q, {0, 130});
  for (const KvType type : {KvType::kF16, KvType::kQ8}) {
    const StateCase state = Run(GetParam().run, kv.As(type), q, {0, 130});
    for (float d : state.d) EXPECT_EQ(d, 130.0f);
  }
}

// One channel of q is not zero, so every score is one exact product and the tolerance stays small.
TEST_P(AttendDecodeTest, KeysAtTheEndOfTheF16RangeStayFinite) {
  KvCase kv = KvCase::Random(100, 64, 13);
  for (size_t t = 0; t < 100; ++t) kv.SetKey(t, 3, t % 3 == 0 ? 6e4f : t % 3 == 1 ? -6e4f : 0.0f);
  std::vector<float> q(2 * 64, 0.0f);
  q[3] = 1.0f;
  q[64 + 3] = -0.125f;
  ExpectMatchesScalar(kv, q, {0, 100});
  ExpectMatchesScalar(kv, q, {1, 3});
}

TEST_P(AttendDecodeTest, AVeryLargeSpreadOfScoresKeepsTheLargest) {
  const KvCase kv = KvCase::Random(333, 64, 14);
  for (float spread : {10.0f, 100.0f, 1000.0f}) {
    ExpectMatchesScalar(kv, RandomQueries(4, 64, 15, spread), {0, 333});
  }
}

TEST_P(AttendDecodeTest, RisingAndFallingScoresRescaleTheState) {
  KvCase kv = KvCase::Random(320, 16, 16);
  for (size_t t = 0; t < 320; ++t) {
    for (size_t c = 0; c < 16; ++c)
      kv.SetKey(t, c, c == 0 ? float(t) : c == 1 ? float(320 - t) : 0.0f);
  }
  std::vector<float> q(2 * 16, 0.0f);
  q[0] = 0.25f;       // row 0: every tile has a new maximum
  q[16 + 1] = 0.25f;  // row 1: the first tile has the maximum
  ExpectMatchesScalar(kv, q, {0, 320});
}

TEST_P(AttendDecodeTest, SplitRangesMergeToTheWhole) {
  const size_t head_dim = 128, group = 6;
  const KvCase kv = KvCase::Random(500, head_dim, 17);
  const std::vector<float> q = RandomQueries(group, head_dim, 18);
  StateCase whole = Run(GetParam().run, kv, q, {0, 500});
  StateCase merged(group, head_dim);
  const size_t cuts[] = {0, 1, 64, 65, 200, 200, 431, 500};
  for (size_t i = 0; i + 1 < std::size(cuts); ++i) {
    StateCase part = Run(GetParam().run, kv, q, {cuts[i], cuts[i + 1]});
    MergeState(merged.state(), part.state(), group, head_dim);
  }
  ExpectSameAttention(merged, whole, q.data(), kv);
}

// Rising keys move the maximum with every tile, so weights written for earlier tiles must shrink.
TEST_P(AttendDecodeTest, WeightsAreThoseOfTheFinalMaximum) {
  constexpr size_t kHeadDim = 64;
  KvCase halves = KvCase::Random(301, kHeadDim, 21);
  for (size_t t = 0; t < 301; ++t) halves.SetKey(t, 0, float(t) / 32.0f);
  for (const KvType type : {KvType::kF16, KvType::kQ8}) {
    const KvCase kv = halves.As(type);
    for (size_t group : {1, 3, 7, 8}) {
      std::vector<float> q = RandomQueries(group, kHeadDim, 22);
      for (size_t r = 0; r < group; ++r) q[r * kHeadDim] = r % 2 == 0 ? 1.0f : -1.0f;
      for (const Range range : {Range{0, 301}, Range{17, 200}, Range{64, 65}, Range{5, 5}}) {
        ExpectWeights(kv, q, range);
      }
    }
  }
}

TEST_P(AttendDecodeTest, AskingForWeightsChangesNothingElse) {
  const KvCase kv = KvCase::Random(150, 128, 23);
  const std::vector<float> q = RandomQueries(6, 128, 24);
  const StateCase without = Run(GetParam().run, kv, q, {3, 150});
  std::vector<float> weights(6 * 147);
  StateCase with(6, 128);
  GetParam().run({.group = 6,
                  .head_dim = 128,
                  .q = q.data(),
                  .kv = kv.view(),
                  .begin = 3,
                  .end = 150,
                  .state = with.state(),
                  .weights = weights.data(),
                  .weight_stride = 147});
  EXPECT_EQ(with.m, without.m);
  EXPECT_EQ(with.d, without.d);
  EXPECT_EQ(with.o, without.o);
}

INSTANTIATE_TEST_SUITE_P(Levels, AttendDecodeTest, ::testing::ValuesIn(AttendDecodeVariants()),
                         VariantName<KernelVariant<AttendDecodeFn>>);

}  // namespace
}  // namespace qevict
