// The codec of a model's cache, fitted to the model: its tables come from the file in which an
// earlier load kept them (docs/formats/codec-tables.md), or the model reads a built-in text while
// they are measured.
#pragma once

#include <cstdint>
#include <memory>

#include "cache/cache_attention.h"
#include "codec/window_codec.h"
#include "core/cancel.h"
#include "engine/cache_config.h"
#include "engine/engine.h"
#include "model/gguf_file.h"
#include "qevict/status.h"

namespace qevict {

// A model that is loaded but for its codec. All are borrowed.
struct ModelToFit {
  const GgufFile& file;
  Engine& engine;             // reads the text
  CacheAttention& attention;  // the engine's, watched meanwhile
  uint32_t chunk_tokens;      // of one Engine::Run
};

// Of the bits that `cache` may use; tables are read from and kept in its folder. Errors:
// kCancelled, kIo, kBadFile, kOutOfMemory, kInternal.
[[nodiscard]] Result<std::unique_ptr<WindowCodec>> FitCodec(const ModelToFit& model,
                                                            const CacheConfig& cache,
                                                            const ProgressFn& progress,
                                                            const CancelFn& cancel);

}  // namespace qevict
