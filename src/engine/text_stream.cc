#include "engine/text_stream.h"

#include <algorithm>
#include <utility>

#include "core/utf8.h"

namespace qevict {
namespace {

// How many bytes at the end of `text` are the beginning of `stop`, but not all of it.
size_t OpenStop(std::string_view text, std::string_view stop) {
  for (size_t bytes = std::min(text.size(), stop.size() - 1); bytes > 0; --bytes) {
    if (text.ends_with(stop.substr(0, bytes))) return bytes;
  }
  return 0;
}

}  // namespace

std::string TextStream::Add(std::string_view bytes) {
  if (stopped_) return "";
  unfinished_char_ += bytes;
  const size_t whole = unfinished_char_.size() - IncompleteUtf8Tail(unfinished_char_);
  held_ += ReplaceInvalidUtf8(std::string_view(unfinished_char_).substr(0, whole));
  unfinished_char_.erase(0, whole);
  return TakeCertain();
}

std::string TextStream::Finish() {
  held_ += ReplaceInvalidUtf8(unfinished_char_);
  unfinished_char_.clear();
  return std::exchange(held_, "");
}

std::string TextStream::TakeCertain() {
  size_t certain = held_.size();
  for (const std::string& stop : stop_strings_) {
    if (const size_t at = held_.find(stop); at != std::string::npos) {
      stopped_ = true;
      certain = std::min(certain, at);
    }
  }
  if (stopped_) {
    std::string text = held_.substr(0, certain);
    held_.clear();
    unfinished_char_.clear();
    return text;
  }
  size_t open = 0;
  for (const std::string& stop : stop_strings_) open = std::max(open, OpenStop(held_, stop));
  std::string text = held_.substr(0, held_.size() - open);
  held_.erase(0, text.size());
  return text;
}

}  // namespace qevict
