#include "engine/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "core/check.h"

namespace qevict {

void Sha256::Deleter::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  QEVICT_CHECK(context_ != nullptr);
  QEVICT_CHECK_EQ(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr), 1);
}

Sha256::~Sha256() = default;

void Sha256::Update(std::span<const uint8_t> bytes) {
  QEVICT_CHECK_EQ(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()), 1);
}

std::string Sha256::HexDigest() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  QEVICT_CHECK_EQ(EVP_DigestFinal_ex(context_.get(), digest, &size), 1);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

Result<std::string> FileSha256(const std::string& path, const ReadProgressFn& progress) {
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Closer> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) {
    return Fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                fmt::format("cannot read {} ({})", path, std::strerror(errno)));
  }
  Sha256 hash;
  std::vector<uint8_t> buffer(size_t{1} << 20);
  uint64_t done = 0;
  while (const size_t bytes = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    hash.Update({buffer.data(), bytes});
    done += bytes;
    if (progress) QEVICT_RETURN_IF_ERROR(progress(done));
  }
  if (std::ferror(file.get()))
    return Fail(ErrorCode::kIo, fmt::format("{} cannot be read to its end", path));
  return hash.HexDigest();
}

}  // namespace qevict
