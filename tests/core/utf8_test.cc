#include "core/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace qevict {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

std::string Encode(uint32_t code_point) {
  if (code_point < 0x80) return {char(code_point)};
  if (code_point < 0x800) return {char(0xC0 | code_point >> 6), char(0x80 | (code_point & 0x3F))};
  if (code_point < 0x10000) {
    return {char(0xE0 | code_point >> 12), char(0x80 | (code_point >> 6 & 0x3F)),
            char(0x80 | (code_point & 0x3F))};
  }
  return {char(0xF0 | code_point >> 18), char(0x80 | (code_point >> 12 & 0x3F)),
          char(0x80 | (code_point >> 6 & 0x3F)), char(0x80 | (code_point & 0x3F))};
}

TEST(Utf8Test, ExactlyTheScalarValuesAreValid) {
  for (uint32_t code_point = 0; code_point < 0x120000; ++code_point) {
    const bool scalar = code_point < 0xD800 || (code_point > 0xDFFF && code_point <= 0x10FFFF);
    ASSERT_EQ(!FirstInvalidUtf8(Encode(code_point)).has_value(), scalar) << code_point;
  }
}

TEST(Utf8Test, TheOffsetNamesTheFirstByteOfTheBadSequence) {
  EXPECT_EQ(FirstInvalidUtf8("0123456789\xFF"), 10u);
  EXPECT_EQ(FirstInvalidUtf8("\xE4\xB8\xAD\xE4\xB8"), 3u);  // cut off at the end
  EXPECT_EQ(FirstInvalidUtf8("ab\xC0\x80"), 2u);            // overlong
  EXPECT_EQ(FirstInvalidUtf8("abcdefg\xF0\x9F\x98x"), 7u);  // a character broken by another
  EXPECT_EQ(FirstInvalidUtf8(std::string_view("a\0b", 3)), std::nullopt);
}

TEST(Utf8Test, OnlyATailThatCanStillBecomeACharacterIsIncomplete) {
  const std::string emoji = "\xF0\x9F\x98\x80";
  EXPECT_EQ(IncompleteUtf8Tail("x" + emoji.substr(0, 1)), 1u);
  EXPECT_EQ(IncompleteUtf8Tail("x" + emoji.substr(0, 2)), 2u);
  EXPECT_EQ(IncompleteUtf8Tail("x" + emoji.substr(0, 3)), 3u);
  EXPECT_EQ(IncompleteUtf8Tail("x" + emoji), 0u);
  EXPECT_EQ(IncompleteUtf8Tail(""), 0u);
  EXPECT_EQ(IncompleteUtf8Tail("\xFF"), 0u);
  EXPECT_EQ(IncompleteUtf8Tail("\xE0\x80"), 0u);  // would be overlong
  EXPECT_EQ(IncompleteUtf8Tail("\x80\x80"), 0u);
}

TEST(Utf8Test, EachLongestBadBeginningBecomesOneReplacementCharacter) {
  const std::string r = kReplacement;
  EXPECT_EQ(ReplaceInvalidUtf8("a\xFF"
                               "b"),
            "a" + r + "b");
  EXPECT_EQ(ReplaceInvalidUtf8("\xF0\x9F\x98z"), r + "z");
  EXPECT_EQ(ReplaceInvalidUtf8("\xE0\x80"), r + r);
  EXPECT_EQ(ReplaceInvalidUtf8("x\xE4\xB8"), "x" + r);
}

TEST(Utf8Test, ReplacementLeavesValidTextAndAlwaysGivesValidText) {
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (size_t i = random() % 24; i > 0; --i) {
      bytes += random() % 2 ? Encode(random() % 0x3000) : std::string(1, char(random()));
    }
    const std::string fixed = ReplaceInvalidUtf8(bytes);
    ASSERT_EQ(FirstInvalidUtf8(fixed), std::nullopt);
    if (!FirstInvalidUtf8(bytes)) {
      ASSERT_EQ(fixed, bytes);
    }
  }
}

}  // namespace
}  // namespace qevict
