#include "model/stderr_capture.h"

#include <unistd.h>

namespace qevict {
namespace {

std::mutex& CaptureMutex() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

StderrCapture::StderrCapture() : lock_(CaptureMutex()) {
  file_ = std::tmpfile();
  if (file_ == nullptr) return;
  std::fflush(stderr);
  saved_descriptor_ = dup(STDERR_FILENO);
  if (saved_descriptor_ >= 0) dup2(fileno(file_), STDERR_FILENO);
}

StderrCapture::~StderrCapture() {
  Finish();
  if (file_ != nullptr) std::fclose(file_);
}

std::string StderrCapture::Finish() {
  if (saved_descriptor_ < 0) return "";
  std::fflush(stderr);
  dup2(saved_descriptor_, STDERR_FILENO);
  close(saved_descriptor_);
  saved_descriptor_ = -1;
  std::string text;
  std::rewind(file_);
  char buffer[4096];
  while (const size_t bytes = std::fread(buffer, 1, sizeof buffer, file_))
    text.append(buffer, bytes);
  return text;
}

void StderrCapture::Forward(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace qevict
