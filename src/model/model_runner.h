// Runs batches of tokens through a model's graph. Nothing of ggml shows here.
#pragma once

#include <memory>
#include <span>

#include "cache/attention.h"
#include "core/cancel.h"
#include "model/gguf_file.h"
#include "model/hyperparameters.h"
#include "model/runner_config.h"
#include "model/token.h"
#include "qevict/ids.h"
#include "qevict/status.h"

namespace qevict {

struct RunArgs {
  std::span<const Token> tokens;         // [rows], each below the vocabulary size
  std::span<const Position> positions;   // [rows]
  std::span<const uint32_t> logit_rows;  // ascending row numbers whose logits are wanted
  const CancelFn* cancel = nullptr;      // null: never
};

// Told between the steps of a prompt that passes through the model layer by layer.
class LayerSteps {
 public:
  virtual ~LayerSteps() = default;
  virtual Status BeginLayer(LayerId layer) = 0;
  // Rows [first, first + rows) of the prompt are about to pass through the layer.
  virtual Status BeginChunk(LayerId layer, uint32_t first, uint32_t rows) = 0;
  virtual void EndLayer(LayerId layer) = 0;
};

// One run at a time.
class ModelRunner {
 public:
  // `file`, `hyperparameters` and `attention` must outlive the runner; `file` has passed
  // ValidateTensors. Errors: kUnsupported, kOutOfMemory, kInternal (ggml lacks a CPU backend or
  // refuses the weights).
  [[nodiscard]] static Result<std::unique_ptr<ModelRunner>> Load(
      const GgufFile& file, const Hyperparameters& hyperparameters, Attention& attention,
      const RunnerConfig& config);
  virtual ~ModelRunner() = default;
  // The logits, [logit_rows, vocab], valid until the next run. Errors: kCancelled, kOutOfMemory,
  // kInternal.
  [[nodiscard]] virtual Result<std::span<const float>> Run(const RunArgs& args) = 0;
  // The same, each layer over the whole prompt before the next one begins, in chunks of
  // `chunk_rows` rows. Holds one hidden state per row. An error of `steps` ends it.
  [[nodiscard]] virtual Result<std::span<const float>> RunByLayer(const RunArgs& args,
                                                                  uint32_t chunk_rows,
                                                                  LayerSteps& steps) = 0;
  // Whether so many rows pass faster layer by layer, because weights are unpacked for them.
  virtual bool unpacks(size_t rows) const = 0;
};

}  // namespace qevict
