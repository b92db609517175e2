// Not part of any build: the gates of .ci/run must refuse this file, or they do less than they say.
#include <string>
#include <utility>

#include "known_bad.h"

std::string used_after_move() {
      std::string text = "moved";   std::string taken = std::move(text);
  return text + taken;
}
