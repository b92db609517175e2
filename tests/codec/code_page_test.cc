#include "codec/code_page.h"

#include <gtest/gtest.h>

#include <ostream>
#include <vector>

#include "tests/support/random.h"

namespace qevict {

void PrintTo(const CodeFormat& format, std::ostream* out) {
  *out << "head_dim " << format.head_dim << " K" << format.key_bits << " V" << format.value_bits;
}

namespace {

CodedToken RandomToken(CodeFormat format, test::Random& random) {
  CodedToken token{};
  for (uint32_t c = 0; c < format.head_dim; ++c) {
    token.key.codes[c] = uint8_t(random.Below(1u << format.key_bits));
    token.value.codes[c] = uint8_t(random.Below(1u << format.value_bits));
  }
  token.key.scale = uint8_t(random.Next());
  token.value.scale = uint8_t(random.Next());
  return token;
}

void ExpectEqual(const CodedToken& a, const CodedToken& b) {
  EXPECT_EQ(a.key.codes, b.key.codes);
  EXPECT_EQ(a.value.codes, b.value.codes);
  EXPECT_EQ(a.key.scale, b.key.scale);
  EXPECT_EQ(a.value.scale, b.value.scale);
}

// The page whose bits the words of code_layout.h describe, bit by bit.
void PutBits(std::vector<uint8_t>& page, size_t byte, size_t bit, uint32_t code, uint32_t bits) {
  for (uint32_t b = 0; b < bits; ++b) page[byte] |= uint8_t((code >> b & 1) << (bit + b));
}

std::vector<uint8_t> PageByDefinition(CodeFormat format, const std::vector<CodedToken>& tokens) {
  std::vector<uint8_t> page(format.page_bytes());
  for (size_t slot = 0; slot < tokens.size(); ++slot) {
    const size_t block = slot / 16 * format.key_block_bytes(), t = slot % 16;
    for (size_t c = 0; c < format.head_dim; ++c) {
      const uint32_t code = tokens[slot].key.codes[c];
      const size_t j = c % 4;
      if (format.key_bits == 4) {
        PutBits(page, block + c / 8 * 64 + 4 * t + j, 4 * (c % 8 / 4), code, 4);
      } else {
        PutBits(page, block + c / 16 * 64 + 4 * t + j, 2 * (c % 16 / 4), code & 3, 2);
        if (format.key_bits == 3)
          PutBits(page, block + (format.head_dim / 16 + c / 32) * 64 + 4 * t + j, c % 32 / 4,
                  code >> 2, 1);
      }
      const size_t group = slot / format.value_group_tokens();
      const size_t in_group = slot % format.value_group_tokens();
      PutBits(page,
              format.keys_bytes() + group * format.value_group_bytes() + c / 16 * 64 +
                  4 * (c % 16) + in_group % 4,
              format.value_bits * (in_group / 4), tokens[slot].value.codes[c], format.value_bits);
    }
    page[format.key_scales_offset() + slot] = tokens[slot].key.scale;
    page[format.value_scales_offset() + slot] = tokens[slot].value.scale;
  }
  return page;
}

class CodePageTest : public testing::TestWithParam<CodeFormat> {
 protected:
  void SetUp() override {
    test::Random random(11);
    for (size_t slot = 0; slot < kCodePageTokens; ++slot)
      tokens_.push_back(RandomToken(GetParam(), random));
    page_.resize(GetParam().page_bytes());
    for (size_t slot = 0; slot < kCodePageTokens; ++slot)
      PutToken(GetParam(), page_.data(), slot, tokens_[slot]);
  }

  std::vector<CodedToken> tokens_;
  std::vector<uint8_t> page_;
};

TEST_P(CodePageTest, HoldsTheBitsWhereTheLayoutSaysTheyAre) {
  EXPECT_EQ(page_, PageByDefinition(GetParam(), tokens_));
}

TEST_P(CodePageTest, GivesEveryTokenBack) {
  for (size_t slot = 0; slot < kCodePageTokens; ++slot)
    ExpectEqual(GetToken(GetParam(), page_.data(), slot), tokens_[slot]);
}

TEST_P(CodePageTest, ATokenReplacesWhatItsSlotHeldAndNothingElse) {
  test::Random random(12);
  for (size_t slot = 0; slot < kCodePageTokens; ++slot) {
    tokens_[slot] = RandomToken(GetParam(), random);
    PutToken(GetParam(), page_.data(), slot, tokens_[slot]);
    ASSERT_EQ(page_, PageByDefinition(GetParam(), tokens_)) << slot;
  }
}

TEST_P(CodePageTest, ACopyIntoAnotherPageHasTheSameBitsFromEverySlotToEverySlot) {
  test::Random random(13);
  std::vector<CodedToken> others;
  for (size_t slot = 0; slot < kCodePageTokens; ++slot)
    others.push_back(RandomToken(GetParam(), random));
  std::vector<uint8_t> other = PageByDefinition(GetParam(), others);
  for (size_t from = 0; from < kCodePageTokens; ++from) {
    for (size_t to = 0; to < kCodePageTokens; to += 1 + from % 5) {
      CopyToken(GetParam(), page_.data(), from, other.data(), to);
      others[to] = tokens_[from];
    }
    ASSERT_EQ(other, PageByDefinition(GetParam(), others)) << from;
  }
}

TEST_P(CodePageTest, ACopyWithinAPageWorksToo) {
  for (size_t from : {63u, 40u, 5u, 0u}) {
    for (size_t to : {0u, 1u, 4u, 17u, 63u}) {
      CopyToken(GetParam(), page_.data(), from, page_.data(), to);
      tokens_[to] = tokens_[from];
      ASSERT_EQ(page_, PageByDefinition(GetParam(), tokens_)) << from << " " << to;
    }
  }
}

std::vector<CodeFormat> AllFormats() {
  std::vector<CodeFormat> formats;
  for (uint32_t head_dim : {16u, 48u, 64u, 80u, 256u}) {
    for (uint32_t key_bits : {2u, 3u, 4u}) {
      for (uint32_t value_bits : {1u, 2u, 4u}) formats.push_back({head_dim, key_bits, value_bits});
    }
  }
  return formats;
}

INSTANTIATE_TEST_SUITE_P(Formats, CodePageTest, testing::ValuesIn(AllFormats()));

// The worked example of docs/formats/code-page.md.
TEST(CodePageExampleTest, IsTheOneOfTheFormatPage) {
  constexpr CodeFormat kFormat{16, 3, 2};
  static_assert(kFormat.key_lines() == 2 && kFormat.key_block_bytes() == 128);
  static_assert(kFormat.keys_bytes() == 512 && kFormat.value_group_bytes() == 64);
  static_assert(kFormat.key_scales_offset() == 768 && kFormat.value_scales_offset() == 832);
  static_assert(kFormat.page_bytes() == 896);
  const CodedToken token = {
      .key = {.codes = {7, 0, 1, 2, 5, 4, 3, 6, 0, 7, 2, 5, 6, 1, 4, 3}, .scale = 160},
      .value = {.codes = {3, 0, 1, 2, 1, 3, 2, 0, 0, 1, 2, 3, 3, 2, 1, 0}, .scale = 112}};
  std::vector<uint8_t> page(kFormat.page_bytes());
  PutToken(kFormat, page.data(), 21, token);  // block 1, token 5 of it; group 1, token 5 of it
  std::vector<uint8_t> expected(kFormat.page_bytes());
  // Channels 0, 4, 8, 12 have the codes 7, 5, 0, 6: low bits 3, 1, 0, 2; third bits 1, 1, 0, 1.
  const uint8_t low[] = {0x87, 0x70, 0x2d, 0xda}, third[] = {0x0b, 0x06, 0x08, 0x06};
  for (size_t j = 0; j < 4; ++j) {
    expected[128 + 20 + j] = low[j];
    expected[128 + 64 + 20 + j] = third[j];
  }
  for (size_t c = 0; c < 16; ++c)
    expected[512 + 64 + 4 * c + 1] = uint8_t(token.value.codes[c] << 2);
  expected[768 + 21] = 160;
  expected[832 + 21] = 112;
  EXPECT_EQ(page, expected);
}

}  // namespace
}  // namespace qevict
