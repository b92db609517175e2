// A bounds-checked walk over the header of a GGUF file, before any library parses it. ggml's reader
// catches much, but it allocates what length fields ask for, and libllama asserts on the rest; what
// passes here is safe to hand to both.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "qevict/status.h"

namespace qevict {

struct GgufLimits {
  uint64_t max_keys = 1u << 16;     // real files: about 40
  uint64_t max_tensors = 1u << 14;  // real files: about 12 per layer
  uint64_t max_strings = 1u << 22;  // in all arrays together; ggml takes about 64 bytes for each
  // Real files: up to about 20 MiB, nearly all of it the vocabulary.
  uint64_t max_header_bytes = 256u << 20;
};

// `file` is the whole file, `path` is for messages. Checks magic, version, every length, count,
// type and name, that no key or tensor occurs twice, and that every tensor lies inside the file.
// Errors: kBadFile, kUnsupported (version 1, big-endian).
Status ScanGguf(std::span<const uint8_t> file, std::string_view path,
                const GgufLimits& limits = {});

// `text` for a message: cut to 64 bytes, and anything that a terminal could interpret replaced by
// '?'.
std::string Printable(std::string_view text);

}  // namespace qevict
