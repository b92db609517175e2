// Progress on stderr: one line that is redrawn on a terminal, and a plain line now and then
// elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace qevict::cli {

class ProgressLine {
 public:
  enum class Style { kTerminal, kPlain, kSilent };
  static Style StyleOfStderr();  // kTerminal when stderr is one and TERM is not "dumb"

  explicit ProgressLine(Style style) : style_(style) {}
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() { Finish(); }

  // `amounts` is text such as "12.0 MiB / 93.8 MiB". Cheap to call often: on a terminal the line is
  // redrawn ten times a second; elsewhere a line is printed when `label` changes, every five
  // seconds, and when the share reaches 1.
  void Update(std::string_view label, double share, std::string_view amounts);
  // Ends a redrawn line, so that other output starts on a fresh one.
  void Finish();

 private:
  void Redraw(std::string_view label, double share, std::string_view amounts);
  Style style_;
  std::string label_;
  bool drawn_ = false, done_ = false;
  std::chrono::steady_clock::time_point last_line_{};
};

}  // namespace qevict::cli
