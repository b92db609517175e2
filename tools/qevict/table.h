// Columns for people: as wide as their longest cell, two spaces apart.
#pragma once

#include <string>
#include <vector>

namespace qevict::cli {

enum class Align { kLeft, kRight };

class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void AddRow(std::vector<std::string> cells);  // as many as there are columns
  std::string Text() const;                     // title line, then rows; each ends with a newline

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace qevict::cli
