#include "tools/qevict/progress_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "tools/qevict/print.h"

namespace qevict::cli {
namespace {

std::chrono::milliseconds Interval(ProgressLine::Style style) {
  return std::chrono::milliseconds(style == ProgressLine::Style::kTerminal ? 100 : 5000);
}

size_t TerminalColumns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace

ProgressLine::Style ProgressLine::StyleOfStderr() {
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::string_view(term) == "dumb";
  return isatty(STDERR_FILENO) && !dumb ? Style::kTerminal : Style::kPlain;
}

void ProgressLine::Update(std::string_view label, double share, std::string_view amounts) {
  if (style_ == Style::kSilent) return;
  share = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) : 0.0;
  const auto now = std::chrono::steady_clock::now();
  const bool fresh = label != label_, done = share >= 1.0 && !done_;
  if (fresh) Finish();
  if (fresh || done || now - last_line_ >= Interval(style_)) {
    if (style_ == Style::kTerminal) {
      Redraw(label, share, amounts);
    } else {
      Print(stderr, "{}: {:.0f} % ({})\n", label, share * 100.0, amounts);
    }
    last_line_ = now;
  }
  done_ = share >= 1.0;
  label_ = label;
}

void ProgressLine::Redraw(std::string_view label, double share, std::string_view amounts) {
  const std::string tail = fmt::format(" {:3.0f} %  {}", share * 100.0, amounts);
  const size_t taken = label.size() + tail.size() + 4, columns = TerminalColumns();
  // A line that wraps cannot be redrawn: without room for a bar there is none.
  const size_t width = columns > taken + 8 ? std::min<size_t>(columns - taken - 1, 40) : 0;
  std::string bar;
  if (width > 0) {
    const size_t full = size_t(share * double(width));
    bar = fmt::format(" [{}{}]", std::string(full, '#'), std::string(width - full, '.'));
  }
  Print(stderr, "\r{}{}{}\x1b[K", label, bar, tail);
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressLine::Finish() {
  if (drawn_) Print(stderr, "\n");
  drawn_ = false;
}

}  // namespace qevict::cli
