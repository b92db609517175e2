// What a library writes to standard error while the object lives, as text. libllama's grammar
// parser says what is wrong nowhere else. Other threads' output of that moment is caught too: keep
// it short, and give back with Forward() what was not for us. One at a time in a process.
#pragma once

#include <cstdio>
#include <mutex>
#include <string>

namespace qevict {

class StderrCapture {
 public:
  StderrCapture();
  StderrCapture(const StderrCapture&) = delete;
  StderrCapture& operator=(const StderrCapture&) = delete;
  ~StderrCapture();

  std::string Finish();  // ends the capture; empty when standard error could not be caught
  static void Forward(const std::string& text);

 private:
  std::unique_lock<std::mutex> lock_;
  std::FILE* file_ = nullptr;
  int saved_descriptor_ = -1;
};

}  // namespace qevict
