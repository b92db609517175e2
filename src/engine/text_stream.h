// Turns the bytes of tokens into text that can be shown as it comes: whole UTF-8 characters, and
// nothing of a stop string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qevict {

class TextStream {
 public:
  // Stop strings are valid UTF-8 and not empty; more than one may be given.
  explicit TextStream(std::vector<std::string> stop_strings)
      : stop_strings_(std::move(stop_strings)) {}

  // The text that has become certain with these bytes. Bytes that can't be part of a character come
  // out as U+FFFD. The start of a character, and text that may turn out to begin a stop string, are
  // held back.
  std::string Add(std::string_view bytes);
  // What is still held back; an unfinished character comes out as U+FFFD. Empty after a stop.
  std::string Finish();
  // A stop string was met. Nothing comes out any more.
  bool stopped() const { return stopped_; }

 private:
  std::string TakeCertain();
  std::vector<std::string> stop_strings_;
  std::string unfinished_char_;  // 0 .. 3 bytes
  std::string held_;             // valid UTF-8
  bool stopped_ = false;
};

}  // namespace qevict
