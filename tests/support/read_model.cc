#include "support/read_model.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/check.h"
#include "model/gguf_file.h"
#include "model/hyperparameters.h"
#include "model/tokenizer.h"
#include "model/validate_tensors.h"

namespace qevict::test {

Status ReadModel(const std::string& path) {
  QEVICT_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  QEVICT_ASSIGN_OR_RETURN(const Hyperparameters shape, ReadHyperparameters(*file));
  QEVICT_RETURN_IF_ERROR(ValidateTensors(*file, shape));
  QEVICT_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::Load(*file));
  QEVICT_CHECK_EQ(tokenizer->vocab_size(), shape.vocab);
  QEVICT_ASSIGN_OR_RETURN(
      const std::vector<Token> tokens,
      tokenizer->Encode("The end, said 1 ant.\n", SpecialText::kParse, Bos::kModelDefault));
  for (const Token token : tokens) {
    QEVICT_CHECK(token >= 0 && uint32_t(token) < shape.vocab);
    tokenizer->IsEndOfGeneration(token);
  }
  tokenizer->Decode(tokens);
  return {};
}

Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path) {
  QEVICT_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  return Tokenizer::Load(*file);
}

ScratchFile::ScratchFile() : descriptor_(memfd_create("qevict-scratch.gguf", MFD_CLOEXEC)) {
  QEVICT_CHECK(descriptor_ >= 0);
  path_ = fmt::format("/proc/self/fd/{}", descriptor_);
}

ScratchFile::~ScratchFile() { close(descriptor_); }

void ScratchFile::Write(std::span<const uint8_t> bytes) const {
  QEVICT_CHECK_EQ(ftruncate(descriptor_, 0), 0);
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t n =
        pwrite(descriptor_, bytes.data() + written, bytes.size() - written, off_t(written));
    QEVICT_CHECK(n > 0);
    written += size_t(n);
  }
}

}  // namespace qevict::test
