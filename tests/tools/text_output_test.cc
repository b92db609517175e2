// How things are written for people: tables, units, suggestions, progress.
#include <gtest/gtest.h>

#include "tools/qevict/nearest_name.h"
#include "tools/qevict/progress_line.h"
#include "tools/qevict/table.h"
#include "tools/qevict/units.h"

namespace qevict::cli {
namespace {

TEST(TableTest, ColumnsAreAsWideAsTheirLongestCell) {
  Table table({{"NAME"}, {"SIZE", Align::kRight}, {"LAST"}});
  table.AddRow({"a", "1", "x"});
  table.AddRow({"longer", "12345", ""});
  EXPECT_EQ(table.Text(),
            "NAME     SIZE  LAST\n"
            "a           1  x\n"
            "longer  12345\n");
}

TEST(TableTest, AccentsCountAsOneCharacter) {
  Table table({{"N"}, {"S"}});
  table.AddRow({"é", "1"});
  table.AddRow({"ab", "2"});
  EXPECT_EQ(table.Text(), "N   S\né   1\nab  2\n");
}

TEST(UnitsTest, BytesCountsAndTokensReadWell) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(98'362'432), "93.8 MiB");
  EXPECT_EQ(FormatBytes(UINT64_MAX), "16777216.0 TiB");
  EXPECT_EQ(FormatCount(134'515'008), "134.5 M");
  EXPECT_EQ(FormatTokens(7), "7");
  EXPECT_EQ(FormatTokens(999), "999");
  EXPECT_EQ(FormatTokens(32768), "32,768");
  EXPECT_EQ(FormatTokens(1'234'567), "1,234,567");
}

TEST(NearestNameTest, FindsSlipsAndNothingFarAway) {
  const std::string names[] = {"--threads", "--json", "models", "gemma3-270m"};
  EXPECT_EQ(NearestName("--theads", names), "--threads");
  EXPECT_EQ(NearestName("--jsno", names), "--json");
  EXPECT_EQ(NearestName("gemma", names), "gemma3-270m");
  EXPECT_EQ(NearestName("--frobnicate", names), "");
  EXPECT_EQ(NearestName("m", names), "");
  EXPECT_EQ(NearestName("x", {}), "");
}

std::string Captured(ProgressLine::Style style) {
  ::testing::internal::CaptureStderr();
  {
    ProgressLine line(style);
    line.Update("fetching", 0.0, "0 / 10");
    line.Update("fetching", 0.5, "5 / 10");  // too soon after the first
    line.Update("fetching", 1.0, "10 / 10");
    line.Update("fetching", 1.0, "10 / 10");
  }
  return ::testing::internal::GetCapturedStderr();
}

TEST(ProgressLineTest, PlainLinesComeAtTheStartAndTheEnd) {
  EXPECT_EQ(Captured(ProgressLine::Style::kPlain),
            "fetching: 0 % (0 / 10)\nfetching: 100 % (10 / 10)\n");
  EXPECT_EQ(Captured(ProgressLine::Style::kSilent), "");
}

TEST(ProgressLineTest, OnATerminalOneLineIsRedrawnAndEnded) {
  const std::string text = Captured(ProgressLine::Style::kTerminal);
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  EXPECT_EQ(text[0], '\r');
}

}  // namespace
}  // namespace qevict::cli
