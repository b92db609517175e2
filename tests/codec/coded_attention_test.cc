// The codec and the attention kernel agree on what a page says: attention over pages that the codec
// wrote is attention over the rows that it decodes.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "codec/code_page.h"
#include "codec/head_codec.h"
#include "codec/mean_rotation.h"
#include "core/aligned_buffer.h"
#include "kernels/attend_codes/attend_codes.h"
#include "tests/support/random.h"
#include "tests/support/rows.h"

namespace qevict {
namespace {

constexpr uint32_t kWindowTokens = 8, kHistoryTokens = 128;

RopePairs Pairs(uint32_t head_dim) {
  RopePairs pairs{.head_dim = head_dim, .layout = RopePairs::Layout::kHalves, .angles = {}};
  for (uint32_t i = 0; i < head_dim / 2; ++i)
    pairs.angles.push_back(std::pow(10000.0, -2.0 * i / head_dim));
  return pairs;
}

class CodedAttentionTest : public testing::TestWithParam<CodeFormat> {};

TEST_P(CodedAttentionTest, IsAttentionOverTheDecodedRows) {
  const CodeFormat format = GetParam();
  const uint32_t head_dim = format.head_dim;
  test::Random random(51);
  const Rotation rotation(head_dim);
  MeanRotation blocks(Pairs(head_dim), Position(4), kWindowTokens);
  ASSERT_TRUE(blocks.Grow(kHistoryTokens / kWindowTokens).ok());
  HeadTables tables = {.weight = std::vector<float>(head_dim),
                       .mean = test::GaussianRow(head_dim, random),
                       .key_scale = 1.25f,
                       .value_scale = 0.75f};
  for (float& a : tables.weight) a = std::exp2(2 * (float(random.Below(1000)) / 1000 - 0.5f));
  const HeadCodec codec(format, tables, &rotation);

  AlignedBuffer pages = AlignedBuffer::Allocate(2 * format.page_bytes()).value();
  const uint8_t* page_of[] = {pages.as<uint8_t>(), pages.as<uint8_t>() + format.page_bytes()};
  std::vector<float> query = test::GaussianRow(head_dim, random);
  for (float& q : query) q *= 1.5f / std::sqrt(float(head_dim));
  std::vector<double> scores(kHistoryTokens);
  std::vector<std::vector<float>> values(kHistoryTokens, std::vector<float>(head_dim));
  for (uint32_t t = 0; t < kHistoryTokens; ++t) {
    std::vector<float> mu(head_dim), key(head_dim);
    Turn(blocks.pairs(), blocks.row(t / kWindowTokens), tables.mean.data(), mu.data());
    for (uint32_t c = 0; c < head_dim; ++c) key[c] = mu[c] + random.Normal();
    CodedToken token;
    codec.EncodeKey(key.data(), mu.data(), token.key);
    codec.EncodeValue(test::GaussianRow(head_dim, random).data(), token.value);
    PutToken(format, const_cast<uint8_t*>(page_of[t / kCodePageTokens]), t % kCodePageTokens,
             token);
    codec.DecodeKey(token.key, mu.data(), key.data());
    codec.DecodeValue(token.value, values[t].data());
    for (uint32_t c = 0; c < head_dim; ++c) scores[t] += double(query[c]) * key[c];
  }
  double d = 0;
  std::vector<double> expected(head_dim);
  for (uint32_t t = 0; t < kHistoryTokens; ++t) {
    d += std::exp(scores[t]);
    for (uint32_t c = 0; c < head_dim; ++c) expected[c] += std::exp(scores[t]) * values[t][c];
  }

  AlignedBuffer q = AlignedBuffer::Allocate(head_dim).value();
  const float q_scale = codec.TransformQuery(query.data(), q.as<int8_t>());
  std::vector<float> z(head_dim), bias(kHistoryTokens / kWindowTokens);
  TurnBack(blocks.pairs(), tables.mean.data(), query.data(), z.data());
  std::vector<uint32_t> bias_of_window;
  for (uint32_t w = 0; w < kHistoryTokens / kWindowTokens; ++w) {
    for (uint32_t c = 0; c < head_dim; ++c) bias[w] += z[c] * blocks.row(w)[c];
    bias_of_window.push_back(w);
  }
  float state_m, state_d;
  AlignedBuffer o = AlignedBuffer::Allocate(head_dim * sizeof(float)).value();
  const AttentionState state = {&state_m, &state_d, o.as<float>()};
  ResetState(state, 1, head_dim);
  AttendCodesArgs args;
  args.rows = 1;
  args.format = format;
  args.q = q.as<int8_t>();
  args.q_scale = &q_scale;
  args.pages = page_of;
  args.end = kHistoryTokens;
  args.omega = kWindowTokens;
  args.bias = bias.data();
  args.bias_stride = bias.size();
  args.bias_of_window = bias_of_window.data();
  args.state = state;
  AttendCodesVariants().back().run(args);  // the scalar reference
  codec.FinishValues(state.o);

  double error = 0, energy = 0;
  for (uint32_t c = 0; c < head_dim; ++c) {
    error += std::pow(double(state.o[c]) / state_d - expected[c] / d, 2);
    energy += std::pow(expected[c] / d, 2);
  }
  // A query's byte is off by 127 / (3 deviations * sqrt(12)): 0.7 % of a score, whose deviation is
  // about 1.5. A weight's byte is off by 0.3 / 255 of the largest weight: 0.1 % for each of the 128
  // tokens, of which about 20 carry the sum. Together some 2 %.
  EXPECT_LT(std::sqrt(error / energy), 0.05);
}

INSTANTIATE_TEST_SUITE_P(Formats, CodedAttentionTest,
                         testing::Values(CodeFormat{64, 2, 1}, CodeFormat{64, 3, 2},
                                         CodeFormat{80, 3, 2}, CodeFormat{128, 4, 4}));

}  // namespace
}  // namespace qevict
