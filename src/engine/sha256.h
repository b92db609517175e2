// SHA-256 through OpenSSL.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "qevict/status.h"

struct evp_md_ctx_st;

namespace qevict {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void Update(std::span<const uint8_t> bytes);
  std::string HexDigest();  // once, at the end

 private:
  struct Deleter {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Deleter> context_;
};

// Called with the bytes read so far; an error from it ends the work and comes back.
using ReadProgressFn = std::function<Status(uint64_t bytes)>;

// Errors: kNotFound, kIo.
[[nodiscard]] Result<std::string> FileSha256(const std::string& path,
                                             const ReadProgressFn& progress = {});

}  // namespace qevict
