// The compute graph of one batch shape, for every supported family. Attention is one opaque pair of
// nodes per layer that calls the attention interface on ggml's own threads; a graph is built once
// per shape and run many times.
#pragma once

#include <ggml-alloc.h>
#include <ggml.h>

#include <memory>
#include <vector>

#include "cache/attention.h"
#include "model/cpu_backend.h"
#include "model/hyperparameters.h"
#include "model/weights.h"

namespace qevict {

struct BatchShape {
  uint32_t rows = 0;        // tokens
  uint32_t logit_rows = 0;  // of them, those whose logits are wanted; 0 .. rows
  friend bool operator==(BatchShape, BatchShape) = default;
};

class Graph {
 public:
  // All references must outlive the graph. Error kOutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<Graph>> Build(const Hyperparameters& hyperparameters,
                                                            const Weights& weights,
                                                            const CpuBackend& cpu,
                                                            Attention& attention, BatchShape shape);

  BatchShape shape() const { return shape_; }
  ggml_cgraph* graph() const { return graph_; }
  int32_t* tokens() const { return static_cast<int32_t*>(tokens_->data); }        // [rows]
  int32_t* positions() const { return static_cast<int32_t*>(positions_->data); }  // [rows]
  // Rows whose logits are wanted, [logit_rows]; null when all or none are.
  int32_t* logit_row_ids() const {
    return logit_row_ids_ ? static_cast<int32_t*>(logit_row_ids_->data) : nullptr;
  }
  const float* logits() const {
    return static_cast<const float*>(logits_->data);
  }  // [logit_rows, vocab] after a run

 private:
  friend class GraphBuilder;
  struct LayerCall {
    Attention* attention;
    LayerId layer;
  };
  struct AllocatorDeleter {
    void operator()(ggml_gallocr* allocator) const { ggml_gallocr_free(allocator); }
  };
  BatchShape shape_;
  GgmlContextPtr context_;
  std::unique_ptr<ggml_gallocr, AllocatorDeleter> allocator_;
  ggml_cgraph* graph_ = nullptr;
  ggml_tensor *tokens_ = nullptr, *positions_ = nullptr, *logit_row_ids_ = nullptr,
              *logits_ = nullptr;
  std::vector<LayerCall> calls_;  // one per layer; nodes point into it
};

}  // namespace qevict
