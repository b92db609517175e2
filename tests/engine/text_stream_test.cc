#include "engine/text_stream.h"

#include <gtest/gtest.h>

#include "core/utf8.h"
#include "support/random.h"

namespace qevict::test {
namespace {

using Pieces = std::vector<std::string>;

// What comes out for each piece that goes in, then what Finish gives.
Pieces Stream(std::vector<std::string> stops, const Pieces& pieces) {
  TextStream stream(std::move(stops));
  Pieces out;
  for (const std::string& piece : pieces) out.push_back(stream.Add(piece));
  out.push_back(stream.Finish());
  return out;
}

std::string Joined(const Pieces& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

TEST(TextStreamTest, ACharacterComesOutWhenItsLastByteHasCome) {
  EXPECT_EQ(Stream({}, {"a\xF0\x9F", "\x98",
                        "\x80"
                        "b"}),
            (Pieces{"a", "",
                    "\xF0\x9F\x98\x80"
                    "b",
                    ""}));
}

TEST(TextStreamTest, AnUnfinishedCharacterAtTheEndIsReplaced) {
  EXPECT_EQ(Stream({}, {"a\xE4\xB8"}), (Pieces{"a", "\xEF\xBF\xBD"}));
}

TEST(TextStreamTest, ABrokenCharacterIsReplacedAsSoonAsItIsKnownToBeBroken) {
  EXPECT_EQ(Stream({}, {"\xE4\xB8", "x", "\xFF"}),
            (Pieces{"", "\xEF\xBF\xBDx", "\xEF\xBF\xBD", ""}));
}

TEST(TextStreamTest, WhatMayBeginAStopStringIsHeldUntilItIsDecided) {
  EXPECT_EQ(Stream({"</s>"}, {"a<", "/", "b", "</s", "x"}),
            (Pieces{"a", "", "</b", "", "</sx", ""}));
  EXPECT_EQ(Stream({"</s>"}, {"a<", "/"}), (Pieces{"a", "", "</"}));
}

TEST(TextStreamTest, NothingOfAStopStringComesOutAndNothingAfterIt) {
  TextStream stream({"END", "\n\n"});
  EXPECT_EQ(stream.Add("one E"), "one ");
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.Add("N"), "");
  EXPECT_EQ(stream.Add("D two"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.Add("three"), "");
  EXPECT_EQ(stream.Finish(), "");
}

TEST(TextStreamTest, TheFirstOfSeveralStopStringsCounts) {
  EXPECT_EQ(Joined(Stream({"cd", "b"}, {"abcd"})), "a");
  EXPECT_EQ(Joined(Stream({"b", "cd"}, {"acdb"})), "a");
  EXPECT_EQ(Joined(Stream({"abcx", "bc"}, {"ab", "c", "y"})), "a");
}

TEST(TextStreamTest, ABeginningThatOverlapsItselfIsFound) {
  EXPECT_EQ(Joined(Stream({"aab"}, {"a", "a", "a", "b", "c"})), "a");
  EXPECT_EQ(Joined(Stream({"\n\nQ:"}, {"x\n", "\n", "\n", "Q", ":"})), "x\n");
}

TEST(TextStreamTest, AStopStringMayBreakCharactersOverTokens) {
  EXPECT_EQ(Joined(Stream({"\xE3\x80\x82"}, {"x\xE3", "\x80", "\x82y"})), "x");
}

TEST(TextStreamTest, HoweverTheBytesAreCutTheTextIsTheSame) {
  Random random(5);
  constexpr std::string_view kUnits[] = {
      "a", "b", "ab", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80", "\xFF", "\xE4\xB8", "\n"};
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (uint64_t i = random.Below(20); i > 0; --i)
      bytes += kUnits[random.Below(std::size(kUnits))];
    const std::vector<std::string> stops = random.Below(2) ? std::vector<std::string>{"aba",
                                                                                      "\xE4\xB8\xAD"
                                                                                      "b"}
                                                           : std::vector<std::string>{};
    std::string expected = ReplaceInvalidUtf8(bytes);
    size_t end = expected.size();
    for (const std::string& stop : stops) end = std::min(end, expected.find(stop));
    expected.resize(end);

    Pieces pieces;
    for (size_t at = 0; at < bytes.size();) {
      pieces.push_back(bytes.substr(at, 1 + random.Below(4)));
      at += pieces.back().size();
    }
    const Pieces out = Stream(stops, pieces);
    ASSERT_EQ(Joined(out), expected);
    for (const std::string& piece : out) ASSERT_EQ(FirstInvalidUtf8(piece), std::nullopt);
  }
}

}  // namespace
}  // namespace qevict::test
