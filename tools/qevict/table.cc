#include "tools/qevict/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/check.h"

namespace qevict::cli {
namespace {

// Characters, not bytes, of valid UTF-8: model names carry accents.
size_t Width(const std::string& text) {
  return size_t(std::ranges::count_if(text, [](char c) { return (uint8_t(c) & 0xc0) != 0x80; }));
}

}  // namespace

void Table::AddRow(std::vector<std::string> cells) {
  QEVICT_CHECK_EQ(cells.size(), columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::Text() const {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  std::vector<const std::vector<std::string>*> lines = {&titles};
  for (const auto& row : rows_) lines.push_back(&row);

  std::string text;
  for (const auto* line : lines) {
    std::string out;
    for (size_t c = 0; c < columns_.size(); ++c) {
      size_t width = 0;
      for (const auto* other : lines) width = std::max(width, Width((*other)[c]));
      const std::string gap(width - Width((*line)[c]), ' ');
      out += columns_[c].align == Align::kRight ? gap + (*line)[c] : (*line)[c] + gap;
      out += "  ";
    }
    out.erase(out.find_last_not_of(' ') + 1);
    text += out + "\n";
  }
  return text;
}

}  // namespace qevict::cli
