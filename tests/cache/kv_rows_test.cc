#include "cache/kv_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/aligned_buffer.h"
#include "tests/support/random.h"

namespace qevict {
namespace {

constexpr uint32_t kSlots = 64, kHeadDim = 80;  // three groups, the last of 16 channels

class KvRowsTest : public ::testing::TestWithParam<KvType> {
 protected:
  struct Head {
    explicit Head(KvType type)
        : buffer(AlignedBuffer::Allocate(2 * kSlots * KvRowBytes(type, kHeadDim)).value()),
          rows(type, kHeadDim, kSlots, buffer.as<uint8_t>(),
               buffer.as<uint8_t>() + kSlots * KvRowBytes(type, kHeadDim)) {}
    // Key, then value.
    std::vector<float> Token(uint32_t slot) const {
      std::vector<float> token(2 * kHeadDim);
      rows.Read(slot, token.data(), token.data() + kHeadDim);
      return token;
    }
    AlignedBuffer buffer;
    KvRows rows;
  };
  // Every slot holds a random token of its own.
  Head Filled() {
    Head head(GetParam());
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      std::vector<float> token(2 * kHeadDim);
      for (float& x : token) x = random_.Normal() * float(1 + slot);
      head.rows.Write(slot, token.data(), token.data() + kHeadDim);
    }
    return head;
  }
  static std::vector<std::vector<float>> Tokens(const Head& head) {
    std::vector<std::vector<float>> tokens;
    for (uint32_t slot = 0; slot < kSlots; ++slot) tokens.push_back(head.Token(slot));
    return tokens;
  }
  test::Random random_{7};
};

TEST_P(KvRowsTest, OneTokenIsWrittenAndNoOther) {
  Head head = Filled();
  std::vector<std::vector<float>> expected = Tokens(head);
  std::vector<float> token(2 * kHeadDim);
  for (size_t i = 0; i < token.size(); ++i) token[i] = float(i % 16) * 127.0f / 15.0f;
  head.rows.Write(37, token.data(), token.data() + kHeadDim);
  const std::vector<float> stored = head.Token(37);
  // Half a step of 127 / 127, or the rounding of f16 at 127.
  for (size_t i = 0; i < token.size(); ++i) EXPECT_NEAR(stored[i], token[i], 0.5f);
  expected[37] = stored;
  EXPECT_TRUE(Tokens(head) == expected);
}

TEST_P(KvRowsTest, MovedTokensAreTheSameBitsAlsoWhereRangesOverlap) {
  for (const auto& [from, to, count] : {std::array{3u, 20u, 9u},
                                        {20u, 3u, 9u},
                                        {5u, 7u, 30u},
                                        {7u, 5u, 30u},
                                        {16u, 16u, 4u},
                                        {9u, 0u, 0u}}) {
    Head head = Filled();
    std::vector<std::vector<float>> expected = Tokens(head);
    const auto before = expected;
    std::copy_n(before.begin() + from, count, expected.begin() + to);
    head.rows.Move(from, to, count);
    EXPECT_TRUE(Tokens(head) == expected) << from << " to " << to;
  }
}

TEST_P(KvRowsTest, ACopyHoldsTheFirstTokensInWholeBlocks) {
  const Head from = Filled();
  for (const uint32_t tokens : {0u, 1u, 16u, 17u, kSlots}) {
    Head to(GetParam());
    to.rows.CopyFrom(from.rows, tokens);
    const uint32_t copied = (tokens + 15) / 16 * 16;
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      EXPECT_TRUE(to.Token(slot) ==
                  (slot < copied ? from.Token(slot) : std::vector<float>(2 * kHeadDim, 0.0f)))
          << tokens << " tokens, slot " << slot;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, KvRowsTest, ::testing::Values(KvType::kF16, KvType::kQ8),
                         [](const auto& test) { return std::string(KvTypeName(test.param)); });

}  // namespace
}  // namespace qevict
