#include "kernels/attend_prefill/attend_prefill.h"

#include "tests/kernels/attention_case.h"

namespace qevict {
namespace {

struct RowRanges {
  std::vector<uint32_t> begin, end;
};

class AttendPrefillTest : public ::testing::TestWithParam<KernelVariant<AttendPrefillFn>> {
 protected:
  void SetUp() override { QEVICT_SKIP_WITHOUT(GetParam()); }

  struct Range {
    size_t begin, end;
  };
  struct Inputs {
    const KvCase& kv;
    const std::vector<float>& q;
    const RowRanges& visible;
  };
  // Adds the keys in `range` to `state`.
  static void Run(AttendPrefillFn run, const Inputs& in, Range range, StateCase& state,
                  bool bf16 = true) {
    const AlignedBuffer scratch =
        AlignedBuffer::Allocate(PrefillScratchFloats(in.kv.head_dim()) * sizeof(float)).value();
    run({.rows = state.rows,
         .head_dim = in.kv.head_dim(),
         .q = in.q.data(),
         .kv = in.kv.view(),
         .begin = range.begin,
         .end = range.end,
         .row_begin = in.visible.begin.data(),
         .row_end = in.visible.end.data(),
         .state = state.state(),
         .bf16 = bf16,
         .scratch = scratch.as<float>()});
  }
  static ProductsIn products() {
    return GetParam().isa == Isa::kAvx512 ? ProductsIn::kBf16 : ProductsIn::kF32;
  }
  void ExpectMatchesScalar(const KvCase& kv, const std::vector<float>& q, const RowRanges& visible,
                           Range range) {
    ExpectSame(kv, q, visible, range);
    SCOPED_TRACE("q8");
    ExpectSame(kv.As(KvType::kQ8), q, visible, range);
  }
  void ExpectSame(const KvCase& kv, const std::vector<float>& q, const RowRanges& visible,
                  Range range) {
    const size_t rows = visible.begin.size();
    SCOPED_TRACE("head_dim " + std::to_string(kv.head_dim()) + ", rows " + std::to_string(rows) +
                 ", slots [" + std::to_string(range.begin) + ", " + std::to_string(range.end) +
                 ")");
    StateCase actual(rows, kv.head_dim()), expected(rows, kv.head_dim());
    Run(GetParam().run, {kv, q, visible}, range, actual);
    Run(AttendPrefillVariants().back().run, {kv, q, visible}, range, expected);
    ExpectSameAttention(actual, expected, q.data(), kv, products());
    if (products() == ProductsIn::kF32) return;
    StateCase in_f32(rows, kv.head_dim());
    Run(GetParam().run, {kv, q, visible}, range, in_f32, /*bf16=*/false);
    ExpectSameAttention(in_f32, expected, q.data(), kv, ProductsIn::kF32);
  }
};

// Rows of a GQA group of `group` at positions first, first + 1, ...; row r sees the last `window`
// slots up to its own.
RowRanges Causal(size_t rows, size_t group, size_t first, size_t window = SIZE_MAX) {
  RowRanges ranges;
  for (size_t r = 0; r < rows; ++r) {
    const size_t end = first + r / group + 1;
    ranges.begin.push_back(uint32_t(end > window ? end - window : 0));
    ranges.end.push_back(uint32_t(end));
  }
  return ranges;
}

RowRanges All(size_t rows, size_t slots) {
  return {std::vector<uint32_t>(rows, 0), std::vector<uint32_t>(rows, uint32_t(slots))};
}

TEST_P(AttendPrefillTest, MatchesScalarReferenceForEveryHeadDim) {
  for (size_t head_dim : {16, 32, 48, 64, 80, 96, 112, 128, 192, 256}) {
    const KvCase kv = KvCase::Random(301, head_dim, 1);
    for (size_t rows : {1, 5, 33}) {
      ExpectMatchesScalar(kv, RandomQueries(rows, head_dim, 2), All(rows, 301), {0, 301});
    }
  }
}

TEST_P(AttendPrefillTest, MatchesScalarReferenceForEveryNumberOfRows) {
  const KvCase kv = KvCase::Random(150, 64, 3);
  for (size_t rows = 1; rows <= kPrefillMaxRows; ++rows) {
    ExpectMatchesScalar(kv, RandomQueries(rows, 64, 4), All(rows, 150), {0, 150});
  }
}

TEST_P(AttendPrefillTest, CausalRowsSeeTheirPast) {
  const KvCase kv = KvCase::Random(400, 64, 5);
  for (size_t group : {1, 3, 7}) {
    for (size_t first : {0, 1, 100, 127, 128, 129, 300}) {
      ExpectMatchesScalar(kv, RandomQueries(98, 64, 6), Causal(98, group, first), {0, 400});
    }
  }
}

TEST_P(AttendPrefillTest, SlidingWindowsSeeTheirWindow) {
  const KvCase kv = KvCase::Random(400, 64, 7);
  for (size_t window : {1, 2, 16, 31, 129}) {
    ExpectMatchesScalar(kv, RandomQueries(90, 64, 8), Causal(90, 2, 200, window), {0, 400});
  }
}

TEST_P(AttendPrefillTest, MatchesScalarReferenceForEveryAlignmentOfTheRange) {
  const KvCase kv = KvCase::Random(400, 48, 9);
  const std::vector<float> q = RandomQueries(13, 48, 10);
  for (size_t begin : {0, 1, 15, 16, 17, 127, 128, 129, 200}) {
    for (size_t length : {1, 2, 15, 16, 17, 63, 128, 130, 200}) {
      ExpectMatchesScalar(kv, q, All(13, 400), {begin, begin + length});
      ExpectMatchesScalar(kv, q, Causal(13, 1, begin + length / 2), {begin, begin + length});
    }
  }
}

TEST_P(AttendPrefillTest, RowsThatSeeNothingKeepTheirState) {
  const KvCase kv = KvCase::Random(140, 64, 11);
  const std::vector<float> q = RandomQueries(8, 64, 12);
  RowRanges visible = All(8, 140);
  for (size_t r : {0, 3, 7}) visible.begin[r] = visible.end[r] = uint32_t(r);
  visible.begin[5] = 90;  // begins after its end
  visible.end[5] = 20;
  ExpectMatchesScalar(kv, q, visible, {0, 140});
  StateCase state(8, 64), untouched(8, 64);
  for (StateCase* s : {&state, &untouched}) {
    std::fill(s->m.begin(), s->m.end(), 2.0f);
    std::fill(s->d.begin(), s->d.end(), 3.0f);
    std::fill(s->o.begin(), s->o.end(), 4.0f);
  }
  const RowRanges nothing = {std::vector<uint32_t>(8, 7), std::vector<uint32_t>(8, 7)};
  const RowRanges all = All(8, 140);
  Run(GetParam().run, {kv, q, nothing}, {0, 140}, state);
  Run(GetParam().run, {kv, q, all}, {50, 50}, state);
  EXPECT_EQ(state.m, untouched.m);
  EXPECT_EQ(state.d, untouched.d);
  EXPECT_EQ(state.o, untouched.o);
}

TEST_P(AttendPrefillTest, RangesAddUpInOneState) {
  const KvCase kv = KvCase::Random(500, 128, 13);
  const std::vector<float> q = RandomQueries(20, 128, 14);
  const RowRanges visible = Causal(20, 1, 450);
  StateCase whole(20, 128), parts(20, 128);
  Run(GetParam().run, {kv, q, visible}, {0, 500}, whole);
  const size_t cuts[] = {0, 1, 64, 65, 200, 200, 431, 500};
  for (size_t i = 0; i + 1 < std::size(cuts); ++i) {
    Run(GetParam().run, {kv, q, visible}, {cuts[i], cuts[i + 1]}, parts);
  }
  ExpectSameAttention(parts, whole, q.data(), kv, products());
}

TEST_P(AttendPrefillTest, TokensThatNoRowSeesHaveNoInfluence) {
  const std::vector<float> q = RandomQueries(12, 64, 16);
  const RowRanges visible = Causal(12, 2, 150, 40);  // [111, 156)
  for (const KvType type : {KvType::kF16, KvType::kQ8}) {
    KvCase kv = KvCase::Random(300, 64, 15);
    StateCase before(12, 64), after(12, 64);
    Run(GetParam().run, {kv.As(type), q, visible}, {0, 300}, before);
    for (size_t t = 0; t < 300; ++t) {
      if (t >= 111 && t < 156) continue;
      for (size_t c = 0; c < 64; ++c) {
        kv.SetKey(t, c, t % 2 ? 6e4f : -6e4f);
        kv.SetValue(t, c, std::numeric_limits<float>::infinity());  // as int8: the scale is NaN
      }
    }
    Run(GetParam().run, {kv.As(type), q, visible}, {0, 300}, after);
    EXPECT_EQ(after.m, before.m);
    EXPECT_EQ(after.d, before.d);
    EXPECT_EQ(after.o, before.o);
  }
}

// As votes on windows ask for it (cache/window_votes.h).
TEST_P(AttendPrefillTest, Int8KeysGoWithF16Values) {
  const KvCase halves = KvCase::Random(200, 80, 21), bytes = halves.As(KvType::kQ8);
  const std::vector<float> q = RandomQueries(9, 80, 22);
  const AlignedBuffer scratch =
      AlignedBuffer::Allocate(PrefillScratchFloats(80) * sizeof(float)).value();
  const RowRanges visible = Causal(9, 1, 150);
  StateCase mixed(9, 80), whole(9, 80);
  KvView view = bytes.view();
  view.v = halves.view().v;
  GetParam().run({.rows = 9,
                  .head_dim = 80,
                  .q = q.data(),
                  .kv = view,
                  .begin = 0,
                  .end = 200,
                  .row_begin = visible.begin.data(),
                  .row_end = visible.end.data(),
                  .state = mixed.state(),
                  .scratch = scratch.as<float>()});
  Run(GetParam().run, {bytes, q, visible}, {0, 200}, whole, /*bf16=*/false);
  EXPECT_EQ(mixed.m, whole.m);
  EXPECT_EQ(mixed.d, whole.d);
  // No int8 value is further than half a step, |v| < 5 / 254, from its f16 one, nor is a mean.
  for (size_t i = 0; i < mixed.o.size(); ++i) {
    EXPECT_NEAR(mixed.o[i] / mixed.d[i / 80], whole.o[i] / whole.d[i / 80], 5.0f / 254.0f);
  }
  EXPECT_NE(mixed.o, whole.o);
}

// One channel of q is not zero, so every score is one exact product and the tolerance stays small.
TEST_P(AttendPrefillTest, KeysAtTheEndOfTheF16RangeStayFinite) {
  KvCase kv = KvCase::Random(200, 64, 17);
  for (size_t t = 0; t < 200; ++t) kv.SetKey(t, 3, t % 3 == 0 ? 6e4f : t % 3 == 1 ? -6e4f : 0.0f);
  std::vector<float> q(2 * 64, 0.0f);
  q[3] = 1.0f;
  q[64 + 3] = -0.125f;
  ExpectMatchesScalar(kv, q, All(2, 200), {0, 200});
  ExpectMatchesScalar(kv, q, Causal(2, 1, 1), {0, 200});
}

TEST_P(AttendPrefillTest, IdenticalKeysAndLargeSpreadsMatchTheScalarReference) {
  KvCase kv = KvCase::Random(333, 64, 18);
  for (float spread : {10.0f, 100.0f, 1000.0f}) {
    ExpectMatchesScalar(kv, RandomQueries(9, 64, 19, spread), Causal(9, 1, 320), {0, 333});
  }
  for (size_t t = 0; t < 333; ++t) {
    for (size_t c = 0; c < 64; ++c) kv.SetKey(t, c, 0.25f * float(c % 5));
  }
  ExpectMatchesScalar(kv, RandomQueries(9, 64, 20), Causal(9, 1, 320), {0, 333});
}

// What keys have in common costs no precision at any level: an offset of 300 in every channel of
// keys with a deviation of 1 leaves scores as exact as without.
TEST_P(AttendPrefillTest, ACommonPartOfAllKeysIsNotRounded) {
  KvCase plain = KvCase::Random(300, 64, 21), offset = KvCase::Random(300, 64, 21);
  for (size_t t = 0; t < 300; ++t) {
    for (size_t c = 0; c < 64; ++c) {
      offset.SetKey(t, c, plain.Key(t, c) + 300.0f);
      plain.SetKey(t, c, offset.Key(t, c) - 300.0f);  // f16 rounds so far from 0
    }
  }
  const std::vector<float> q = RandomQueries(5, 64, 22);
  StateCase actual(5, 64), expected(5, 64);
  Run(GetParam().run, {offset, q, All(5, 300)}, {0, 300}, actual);
  Run(AttendPrefillVariants().back().run, {plain, q, All(5, 300)}, {0, 300}, expected);
  for (size_t r = 0; r < 5; ++r) {
    float common = 0.0f;
    for (size_t c = 0; c < 64; ++c) common += 300.0f * q[r * 64 + c];
    expected.m[r] += common;
    // f32 sums of terms of 300 |q|, beside what the plain keys' scores may be off by.
    const float sum = 300.0f * 64 * 64 * 0x1p-24f;
    const float score = ScoreTolerance(&q[r * 64], plain, products()) + sum;
    EXPECT_NEAR(actual.m[r] + std::log(actual.d[r]), expected.m[r] + std::log(expected.d[r]),
                2 * score)
        << "row " << r;
  }
}

// A token's result does not depend on later ones.
TEST_P(AttendPrefillTest, RowsDependOnNoKeyThatTheyDoNotSee) {
  KvCase kv = KvCase::Random(260, 64, 23);
  const std::vector<float> q = RandomQueries(40, 64, 24);
  const RowRanges visible = Causal(40, 2, 230);
  StateCase before(40, 64), after(40, 64);
  Run(GetParam().run, {kv, q, visible}, {0, 260}, before);
  for (size_t t = 240; t < 260; ++t) {
    for (size_t c = 0; c < 64; ++c) kv.SetKey(t, c, 50.0f);
    for (size_t c = 0; c < 64; ++c) kv.SetValue(t, c, -50.0f);
  }
  Run(GetParam().run, {kv, q, visible}, {0, 260}, after);
  for (size_t r = 0; r < 20; ++r) {
    EXPECT_EQ(after.m[r], before.m[r]) << r;
    EXPECT_EQ(after.d[r], before.d[r]) << r;
    for (size_t c = 0; c < 64; ++c) EXPECT_EQ(after.o[r * 64 + c], before.o[r * 64 + c]) << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, AttendPrefillTest, ::testing::ValuesIn(AttendPrefillVariants()),
                         VariantName<KernelVariant<AttendPrefillFn>>);

}  // namespace
}  // namespace qevict
