#include "model/text_parts.h"

#include <gtest/gtest.h>

#include <string>

namespace qevict {
namespace {

std::string Repeat(std::string_view unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

TEST(TextPartsTest, OrdinaryTextOfAnyLengthIsOnePart) {
  for (const char* unit : {"The quick brown fox. ", "\xE4\xBD\xA0\xE5\xA5\xBD\xE3\x80\x82",
                           "\xE4\xBD\xA0\xE5\xA5\xBD\n", "0.25, ", "x = f(y);\n    "}) {
    const std::string text = Repeat(unit, 100'000);
    EXPECT_EQ(PartEnd(text, 0), text.size()) << unit;
  }
}

TEST(TextPartsTest, ALongRunIsCutBetweenCharacters) {
  for (const char* unit : {"a", " ", "\n", "!?", "a1Z", "\xC3\xA9", "\xE4\xB8\xAD",
                           "\xF0\x9F\x98\x80", "\xC2\xA0", " \xC2\xA0"}) {
    const std::string text = "x y " + Repeat(unit, 50'000);
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = PartEnd(text, begin);
      ASSERT_GT(end, begin);
      ASSERT_LE(end - begin, 2 * kLongestRunBytes) << unit;
      if (end < text.size()) {
        ASSERT_NE(uint8_t(text[end]) & 0xC0, 0x80) << unit;
      }
      begin = end;
    }
  }
}

TEST(TextPartsTest, ARunOfTheGreatestLengthIsKeptWhole) {
  const std::string text = "(" + std::string(kLongestRunBytes, 'a') + ")";
  EXPECT_EQ(PartEnd(text, 0), text.size());
}

}  // namespace
}  // namespace qevict
