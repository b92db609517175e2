// All that is read of a model file before weights are used, on bytes that may be anything.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "model/tokenizer.h"
#include "qevict/status.h"

namespace qevict::test {

// Open, hyper-parameters, tensors and vocabulary, and then a text through the tokenizer: what
// loading a model does, without its weights. Must not crash whatever the file holds.
Status ReadModel(const std::string& path);

// The vocabulary of the file at `path`. Errors: those of GgufFile::Open and Tokenizer::Load.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path);

// A file that is overwritten again and again. Kept in memory where the system can, so that
// thousands of rounds are cheap.
class ScratchFile {
 public:
  ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile();
  const std::string& path() const { return path_; }
  void Write(std::span<const uint8_t> bytes) const;

 private:
  int descriptor_ = -1;
  std::string path_;
};

}  // namespace qevict::test
