#include "kernels/attend_codes/attend_codes.h"

#include "tests/kernels/attention_case.h"
#include "tests/kernels/code_pages_case.h"

namespace qevict {
namespace {

struct Range {
  size_t begin, end;
};

// Query rows, and biases of a table of kBiases entries a row that windows share.
struct Rows {
  static constexpr size_t kBiases = 11;

  Rows(size_t row_count, size_t head_dim, uint32_t seed, float spread = 2.0f)
      : count(row_count), q(row_count * head_dim), q_scale(row_count), bias(row_count * kBiases) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    for (int8_t& x : q) x = int8_t(std::clamp(normal(rng) * 40.0f, -127.0f, 127.0f));
    // Scores with a deviation of about `spread`: codes are uniform, so levels deviate by about 1.
    for (float& x : q_scale) x = spread / (40.0f * std::sqrt(float(head_dim)));
    for (float& x : bias) x = normal(rng);
  }
  size_t count;
  std::vector<int8_t> q;
  std::vector<float> q_scale, bias;
};

enum class Options { kPlain, kBias, kMasses, kBiasAndMasses };

struct Outcome {
  Outcome(size_t rows, size_t head_dim, size_t windows)
      : state(rows, head_dim), masses(rows * (windows + 3), -7.0f), mass_stride(windows + 3) {}
  StateCase state;
  std::vector<float> masses;  // of windows that the kernel must not touch: -7
  size_t mass_stride;
};

bool HasBias(Options options) {
  return options == Options::kBias || options == Options::kBiasAndMasses;
}
bool HasMasses(Options options) {
  return options == Options::kMasses || options == Options::kBiasAndMasses;
}

std::vector<uint32_t> BiasOfWindow(size_t windows) {
  std::vector<uint32_t> of(windows);
  for (size_t w = 0; w < windows; ++w) of[w] = uint32_t(w * 7 % Rows::kBiases);
  return of;
}

struct Attention {
  const CodePagesCase& pages;
  const Rows& rows;
  size_t omega;
  Range range;
  Options options = Options::kBiasAndMasses;

  size_t windows() const { return (range.end - range.begin) / omega; }

  Outcome Run(AttendCodesFn run) const {
    Outcome outcome(rows.count, pages.format().head_dim, windows());
    RunInto(run, outcome);
    return outcome;
  }
  void RunInto(AttendCodesFn run, Outcome& outcome) const {
    const std::vector<uint32_t> bias_of_window = BiasOfWindow(windows());
    run({.rows = rows.count,
         .format = pages.format(),
         .q = rows.q.data(),
         .q_scale = rows.q_scale.data(),
         .pages = pages.pages(),
         .begin = range.begin,
         .end = range.end,
         .omega = omega,
         .bias = HasBias(options) ? rows.bias.data() : nullptr,
         .bias_stride = Rows::kBiases,
         .bias_of_window = HasBias(options) ? bias_of_window.data() : nullptr,
         .state = outcome.state.state(),
         .masses = HasMasses(options) ? outcome.masses.data() : nullptr,
         .mass_stride = outcome.mass_stride});
  }
};

// What of a row's exact result bounds the differences between two ways to compute it.
struct RowBounds {
  double score = 0.0;        // largest |score|
  double value = 0.0;        // largest |value|
  double page_values = 0.0;  // sum over pages of (largest weight / 255) * largest |level|, over d
  double page_tokens = 0.0;  // the same times the page's tokens
};

// Everything in double precision, without rounding of weights.
struct Exact {
  std::vector<double> lse, o;  // [rows], [rows, head_dim], o normalised
  std::vector<double> masses;  // [rows, windows], normalised
  std::vector<RowBounds> bounds;
};
Exact Compute(const Attention& a) {
  const size_t head_dim = a.pages.format().head_dim, windows = a.windows();
  Exact exact;
  exact.o.resize(a.rows.count * head_dim);
  exact.masses.resize(a.rows.count * windows);
  const std::vector<uint32_t> bias_of_window = BiasOfWindow(windows);
  const CodeLevels& levels = LevelsOf(a.pages.format().value_bits);
  const double largest_level = levels.offset * double(levels.unit);
  for (size_t r = 0; r < a.rows.count; ++r) {
    RowBounds bounds;
    std::vector<double> scores;
    double m = -1e300;
    for (size_t t = a.range.begin; t < a.range.end; ++t) {
      double s = 0.0;
      for (size_t c = 0; c < head_dim; ++c) s += a.rows.q[r * head_dim + c] * a.pages.Key(t, c);
      s *= double(a.rows.q_scale[r]);
      if (HasBias(a.options)) {
        s += double(a.rows.bias[r * Rows::kBiases + bias_of_window[(t - a.range.begin) / a.omega]]);
      }
      scores.push_back(s);
      m = std::max(m, s);
      if (!std::isinf(s)) bounds.score = std::max(bounds.score, std::abs(s));
    }
    double d = 0.0;
    std::vector<double> largest_weight(a.range.end / 64 + 1);
    for (size_t t = a.range.begin; t < a.range.end; ++t) {
      const double p = std::exp(scores[t - a.range.begin] - m);
      d += p;
      exact.masses[r * windows + (t - a.range.begin) / a.omega] += p;
      largest_weight[t / 64] = std::max(largest_weight[t / 64], p * a.pages.ValueScale(t));
      for (size_t c = 0; c < head_dim; ++c) {
        exact.o[r * head_dim + c] += p * a.pages.Value(t, c);
        bounds.value = std::max(bounds.value, std::abs(a.pages.Value(t, c)));
      }
    }
    for (size_t page = 0; page < largest_weight.size(); ++page) {
      const size_t first = std::max(a.range.begin, page * 64);
      const size_t last = std::min(a.range.end, page * 64 + 64);
      if (last <= first) continue;
      bounds.page_values += largest_weight[page] / 255.0 * largest_level / d;
      bounds.page_tokens += largest_weight[page] / 255.0 * largest_level / d * double(last - first);
    }
    for (size_t c = 0; c < head_dim; ++c) exact.o[r * head_dim + c] /= d;
    for (size_t w = 0; w < windows; ++w) exact.masses[r * windows + w] /= d;
    exact.lse.push_back(m + std::log(d));
    exact.bounds.push_back(bounds);
  }
  return exact;
}

// The integer sums are exact. A score then has four roundings (2^-24 each) and a scale that is off
// by 4e-7 at most, which moves every weight by the factor exp(+-score_error); an exponential adds
// 4e-7, and a sum over the tokens a rounding per 16 of them (the kernels sum lane by lane) or per
// token (the reference).
double WeightError(const Attention& a, const RowBounds& bounds) {
  const double score_error = bounds.score * (4.0 * 0x1p-24 + 4e-7);
  return std::expm1(score_error) + 4e-7 + double(a.range.end - a.range.begin) * 0x1p-24;
}

void ExpectNear(const Attention& a, const Outcome& actual, const Outcome& expected,
                const Exact& exact) {
  const size_t head_dim = a.pages.format().head_dim;
  for (size_t r = 0; r < a.rows.count; ++r) {
    const RowBounds& bounds = exact.bounds[r];
    const double error = 2.0 * WeightError(a, bounds);
    const double lse = double(expected.state.m[r]) + std::log(double(expected.state.d[r]));
    ASSERT_NEAR(double(actual.state.m[r]) + std::log(double(actual.state.d[r])), lse, error)
        << "row " << r;
    // Two results round a weight to different bytes where it lies within `error` of a tie, so the
    // chance is 255 error at most: no page of these tests has more than two such weights.
    const double tolerance = 2.0 * error * bounds.value + 2.0 * bounds.page_values;
    for (size_t c = 0; c < head_dim; ++c) {
      ASSERT_NEAR(actual.state.o[r * head_dim + c] / actual.state.d[r],
                  expected.state.o[r * head_dim + c] / expected.state.d[r], tolerance)
          << "row " << r << " channel " << c;
    }
    for (size_t w = 0; w < actual.mass_stride; ++w) {
      const float mass = actual.masses[r * actual.mass_stride + w];
      if (w >= a.windows() || !HasMasses(a.options)) {
        ASSERT_EQ(mass, -7.0f) << "row " << r << " window " << w;
        continue;
      }
      const float same = expected.masses[r * expected.mass_stride + w];
      ASSERT_NEAR(mass / actual.state.d[r], same / expected.state.d[r],
                  2.0 * error * double(same / expected.state.d[r]) + 1e-37)
          << "row " << r << " window " << w;
    }
  }
}

class AttendCodesTest : public ::testing::TestWithParam<KernelVariant<AttendCodesFn>> {
 protected:
  void SetUp() override { QEVICT_SKIP_WITHOUT(GetParam()); }

  static void ExpectMatchesScalar(const Attention& a) {
    const CodeFormat& format = a.pages.format();
    SCOPED_TRACE("head_dim " + std::to_string(format.head_dim) + ", K" +
                 std::to_string(format.key_bits) + "/V" + std::to_string(format.value_bits) +
                 ", rows " + std::to_string(a.rows.count) + ", omega " + std::to_string(a.omega) +
                 ", slots [" + std::to_string(a.range.begin) + ", " + std::to_string(a.range.end) +
                 "), options " + std::to_string(int(a.options)));
    ExpectNear(a, a.Run(GetParam().run), a.Run(AttendCodesVariants().back().run), Compute(a));
  }
};

constexpr uint32_t kKeyBits[] = {2, 3, 4};
constexpr uint32_t kValueBits[] = {1, 2, 4};

TEST_P(AttendCodesTest, MatchesScalarReferenceForEveryHeadDimAndWidthOfCodes) {
  for (uint32_t head_dim : {16, 48, 64, 80, 96, 128, 256}) {
    const Rows rows(7, head_dim, 1);
    for (uint32_t key_bits : kKeyBits) {
      for (uint32_t value_bits : kValueBits) {
        const CodePagesCase pages({head_dim, key_bits, value_bits}, 200, 2);
        ExpectMatchesScalar({pages, rows, 8, {8, 200}});
      }
    }
  }
}

TEST_P(AttendCodesTest, MatchesScalarReferenceForEveryNumberOfRows) {
  for (uint32_t head_dim : {64, 80}) {
    for (uint32_t key_bits : kKeyBits) {
      for (uint32_t value_bits : kValueBits) {
        const CodePagesCase pages({head_dim, key_bits, value_bits}, 136, 3);
        for (size_t count : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 28}) {
          ExpectMatchesScalar({pages, Rows(count, head_dim, 4), 8, {0, 136}});
        }
      }
    }
  }
}

TEST_P(AttendCodesTest, ABandOfRowsIsNotTheEndOfTheRows) {
  const CodePagesCase pages({16, 3, 2}, 72, 5);
  ExpectMatchesScalar({pages, Rows(531, 16, 6), 8, {0, 72}});
}

TEST_P(AttendCodesTest, MatchesScalarReferenceForEveryWindowLength) {
  const CodePagesCase pages({64, 3, 2}, 64 * 9, 7);
  const Rows rows(5, 64, 8);
  for (size_t omega : {1, 2, 3, 5, 8, 12, 16, 24, 32, 40, 48, 56, 63, 64}) {
    for (Options options :
         {Options::kPlain, Options::kBias, Options::kMasses, Options::kBiasAndMasses}) {
      const size_t windows = pages.tokens() / omega;
      ExpectMatchesScalar({pages, rows, omega, {0, omega}, options});
      ExpectMatchesScalar({pages, rows, omega, {omega, 2 * omega}, options});
      ExpectMatchesScalar({pages, rows, omega, {0, omega * windows}, options});
      ExpectMatchesScalar({pages, rows, omega, {omega * (windows / 2), omega * windows}, options});
    }
  }
}

TEST_P(AttendCodesTest, MatchesScalarReferenceForRangesThatStartAndEndInsidePages) {
  for (uint32_t value_bits : kValueBits) {
    const CodePagesCase pages({48, 2, value_bits}, 300, 9);
    const Rows rows(3, 48, 10);
    for (size_t begin : {0, 1, 7, 15, 16, 17, 31, 40, 63, 64, 65, 127, 150}) {
      for (size_t length : {1, 2, 8, 15, 16, 17, 33, 48, 63, 64, 65, 128, 150}) {
        ExpectMatchesScalar({pages, rows, 1, {begin, begin + length}});
      }
    }
  }
}

TEST_P(AttendCodesTest, TokensOutsideTheRangeHaveNoInfluence) {
  CodePagesCase pages({64, 3, 2}, 192, 11);
  const Rows rows(7, 64, 12);
  const Attention attention{pages, rows, 8, {24, 152}};
  const Outcome before = attention.Run(GetParam().run);
  for (size_t t = 0; t < 192; ++t) {
    if (t >= 24 && t < 152) continue;
    pages.SetScales(t, t % 2 ? 255 : 0, t % 3 ? 255 : 0);
    for (size_t c = 0; c < 64; ++c) {
      pages.SetKeyCode(t, c, c % 2 ? 7 : 0);
      pages.SetValueCode(t, c, 3);
    }
  }
  const Outcome after = attention.Run(GetParam().run);
  EXPECT_EQ(after.state.m, before.state.m);
  EXPECT_EQ(after.state.d, before.state.d);
  EXPECT_EQ(after.state.o, before.state.o);
  EXPECT_EQ(after.masses, before.masses);
}

TEST_P(AttendCodesTest, PartsMergeIntoAStateThatIsNotEmpty) {
  const CodePagesCase pages({64, 3, 2}, 512, 13);
  const Rows rows(7, 64, 14);
  const Attention whole{pages, rows, 8, {0, 512}, Options::kMasses};
  Outcome merged(7, 64, 64);
  const size_t cuts[] = {0, 8, 64, 72, 256, 440, 512};
  for (size_t i = 0; i + 1 < std::size(cuts); ++i) {
    const Attention part{pages, rows, 8, {cuts[i], cuts[i + 1]}, Options::kMasses};
    const std::vector<float> m_before = merged.state.m;
    Outcome step(7, 64, part.windows());
    step.state = merged.state;
    part.RunInto(GetParam().run, step);
    merged.state = step.state;
    for (size_t r = 0; r < 7; ++r) {
      for (size_t w = 0; w < part.windows(); ++w) {
        merged.masses[r * merged.mass_stride + cuts[i] / 8 + w] =
            step.masses[r * step.mass_stride + w];
      }
      // Masses of earlier parts were relative to the m that their call returned.
      for (size_t w = 0; w < cuts[i] / 8; ++w) {
        merged.masses[r * merged.mass_stride + w] *= std::exp(m_before[r] - step.state.m[r]);
      }
    }
  }
  // Pages that a cut divides have two factors instead of one, and each is the smaller: the error
  // stays within the sum over tokens of half a byte's step.
  Exact exact = Compute(whole);
  for (RowBounds& bounds : exact.bounds) bounds.page_values = bounds.page_tokens / 2.0;
  ExpectNear(whole, merged, whole.Run(AttendCodesVariants().back().run), exact);
}

// The only rounding that is more than f32's is that of the weights: half a step per token.
TEST_P(AttendCodesTest, IsWithinTheRoundingOfWeightsOfAComputationInDoublePrecision) {
  for (uint32_t head_dim : {16, 64, 80}) {
    for (uint32_t key_bits : kKeyBits) {
      for (uint32_t value_bits : kValueBits) {
        const CodePagesCase pages({head_dim, key_bits, value_bits}, 330, 15);
        const Rows rows(4, head_dim, 16);
        const Attention a{pages, rows, 3, {27, 330}};
        const Outcome outcome = a.Run(GetParam().run);
        const Exact exact = Compute(a);
        double squares = 0.0, bound_squares = 0.0;
        for (size_t r = 0; r < 4; ++r) {
          const RowBounds& bounds = exact.bounds[r];
          const double error = 2.0 * WeightError(a, bounds);
          EXPECT_NEAR(double(outcome.state.m[r]) + std::log(double(outcome.state.d[r])),
                      exact.lse[r], error);
          for (size_t w = 0; w < a.windows(); ++w) {
            const double mass = exact.masses[r * a.windows() + w];
            EXPECT_NEAR(outcome.masses[r * outcome.mass_stride + w] / outcome.state.d[r], mass,
                        2.0 * error * mass);
          }
          const double tolerance = bounds.page_tokens / 2.0 + 2.0 * error * bounds.value;
          for (size_t c = 0; c < head_dim; ++c) {
            const double o = double(outcome.state.o[r * head_dim + c] / outcome.state.d[r]);
            const double difference = o - exact.o[r * head_dim + c];
            ASSERT_LE(std::abs(difference), tolerance) << "row " << r << " channel " << c;
            squares += difference * difference;
            bound_squares += tolerance * tolerance;
          }
        }
        // Rounding errors of many tokens cancel; a lost code or a wrong factor would not.
        EXPECT_LT(squares, bound_squares / 16.0)
            << "head_dim " << head_dim << " K" << key_bits << "/V" << value_bits;
      }
    }
  }
}

TEST_P(AttendCodesTest, OneTokenGivesItsValue) {
  const CodePagesCase pages({80, 4, 4}, 130, 17);
  const Rows rows(5, 80, 18);
  const Outcome outcome = Attention{pages, rows, 1, {77, 78}}.Run(GetParam().run);
  for (size_t r = 0; r < 5; ++r) {
    EXPECT_EQ(outcome.state.d[r], 1.0f);
    EXPECT_EQ(outcome.masses[r * outcome.mass_stride], 1.0f);
    for (size_t c = 0; c < 80; ++c) {
      const double value = pages.Value(77, c);
      ASSERT_NEAR(outcome.state.o[r * 80 + c], value, 1e-6 * std::abs(value));
    }
  }
}

TEST_P(AttendCodesTest, AQueryOfZerosGivesTheMeanOfTheValues) {
  CodePagesCase pages({64, 3, 2}, 192, 19);
  Rows rows(7, 64, 20);
  std::fill(rows.q.begin(), rows.q.end(), int8_t{0});
  const Attention attention{pages, rows, 8, {0, 192}, Options::kMasses};
  ExpectMatchesScalar(attention);
  const Outcome outcome = attention.Run(GetParam().run);
  for (size_t r = 0; r < 7; ++r) {
    EXPECT_EQ(outcome.state.m[r], 0.0f);
    EXPECT_EQ(outcome.state.d[r], 192.0f);
    for (size_t w = 0; w < 24; ++w) EXPECT_EQ(outcome.masses[r * outcome.mass_stride + w], 8.0f);
  }
}

TEST_P(AttendCodesTest, TheSmallestAndTheLargestScaleBytesStayFinite) {
  for (uint32_t key_bits : kKeyBits) {
    for (uint32_t value_bits : kValueBits) {
      CodePagesCase pages({64, key_bits, value_bits}, 192, 21);
      for (size_t t = 0; t < 192; ++t) {
        pages.SetScales(t, t % 3 == 0 ? 255 : 0, t % 2 == 0 ? 255 : 0);
      }
      ExpectMatchesScalar({pages, Rows(7, 64, 22), 16, {0, 192}});
    }
  }
}

// The largest sums that bytes can give, of both signs.
TEST_P(AttendCodesTest, TheLargestQueriesAgainstTheLargestLevelsDoNotOverflow) {
  for (uint32_t key_bits : kKeyBits) {
    for (uint32_t value_bits : kValueBits) {
      CodePagesCase pages({256, key_bits, value_bits}, 128, 23);
      for (size_t t = 0; t < 128; ++t) {
        pages.SetScales(t, 128, 128);
        for (size_t c = 0; c < 256; ++c) {
          pages.SetKeyCode(t, c, t % 3 == 0 ? 0 : (1u << key_bits) - 1);
          pages.SetValueCode(t, c, c % 3 == 0 ? 0 : (1u << value_bits) - 1);
        }
      }
      Rows rows(8, 256, 24);
      for (size_t i = 0; i < rows.q.size(); ++i) rows.q[i] = i / 256 % 2 ? -127 : 127;
      std::fill(rows.q_scale.begin(), rows.q_scale.end(), 1e-4f);
      ExpectMatchesScalar({pages, rows, 8, {0, 128}});
    }
  }
}

// Most pages are nothing beside the one with the largest score, which comes first, last or between.
TEST_P(AttendCodesTest, AVeryLargeSpreadOfScoresKeepsTheLargest) {
  const CodePagesCase pages({64, 3, 2}, 640, 25);
  for (float spread : {20.0f, 200.0f, 2000.0f}) {
    ExpectMatchesScalar({pages, Rows(6, 64, 26, spread), 8, {0, 640}});
  }
}

TEST_P(AttendCodesTest, RisingScoresRescaleStateAndMasses) {
  CodePagesCase pages({16, 4, 2}, 512, 27);
  for (size_t t = 0; t < 512; ++t) {
    pages.SetScales(t, uint8_t(t / 2), 128);
    for (size_t c = 0; c < 16; ++c) pages.SetKeyCode(t, c, c < 8 ? 15 : 0);
  }
  Rows rows(2, 16, 28);
  for (size_t c = 0; c < 16; ++c) {
    rows.q[c] = c < 8 ? 100 : 0;
    rows.q[16 + c] = c < 8 ? 0 : 100;  // falling
  }
  for (size_t omega : {4, 8, 64}) ExpectMatchesScalar({pages, rows, omega, {0, 512}});
}

TEST_P(AttendCodesTest, AWindowWithABiasOfMinusInfinityIsNotSeen) {
  const CodePagesCase pages({64, 3, 2}, 256, 29);
  Rows rows(9, 64, 30);
  const std::vector<uint32_t> hidden = BiasOfWindow(8);  // at least the first page
  for (size_t r = 0; r < 9; ++r) {
    for (uint32_t bias : hidden) {
      rows.bias[r * Rows::kBiases + bias] = -std::numeric_limits<float>::infinity();
    }
  }
  ExpectMatchesScalar({pages, rows, 8, {0, 256}});
  const Outcome nothing = Attention{pages, rows, 8, {64, 128}}.Run(GetParam().run);
  for (size_t r = 0; r < 9; ++r) {
    EXPECT_EQ(nothing.state.m[r], -std::numeric_limits<float>::infinity());
    EXPECT_EQ(nothing.state.d[r], 0.0f);
    for (size_t w = 0; w < 8; ++w) EXPECT_EQ(nothing.masses[r * nothing.mass_stride + w], 0.0f);
    for (size_t c = 0; c < 64; ++c) ASSERT_EQ(nothing.state.o[r * 64 + c], 0.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, AttendCodesTest, ::testing::ValuesIn(AttendCodesVariants()),
                         VariantName<KernelVariant<AttendCodesFn>>);

}  // namespace
}  // namespace qevict
