// The compute graph of one batch shape, for every supported family: all layers, or one of them.
// Attention is one opaque pair of nodes per layer that calls the attention interface on ggml's own
// threads; a graph of all layers is built once per shape and run many times.
#pragma once

#include <ggml-alloc.h>
#include <ggml.h>

#include <memory>
#include <vector>

#include "cache/attention.h"
#include "model/cpu_backend.h"
#include "model/hyperparameters.h"
#include "model/layer_products.h"
#include "model/weights.h"

namespace qevict {

struct BatchShape {
  uint32_t rows = 0;                         // tokens
  uint32_t logit_rows = 0;                   // of them, those whose logits are wanted; 0 .. rows
  uint32_t first_layer = 0, last_layer = 0;  // [first, last); both 0: all layers
  friend bool operator==(BatchShape, BatchShape) = default;
};

struct GraphAllocatorDeleter {
  void operator()(ggml_gallocr* allocator) const { ggml_gallocr_free(allocator); }
};
using GraphAllocatorPtr = std::unique_ptr<ggml_gallocr, GraphAllocatorDeleter>;
GraphAllocatorPtr NewGraphAllocator(const CpuBackend& cpu);

class Graph {
 public:
  struct Parts {
    const Hyperparameters& hyperparameters;
    const Weights& weights;
    Attention& attention;
    LayerProducts* products = nullptr;  // null: ggml does every product
  };
  // All references must outlive the graph, `allocator` too, whose memory serves one graph at a
  // time. Error kOutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<Graph>> Build(const Parts& parts,
                                                            ggml_gallocr* allocator,
                                                            BatchShape shape);
  // The same with an allocator of its own.
  [[nodiscard]] static Result<std::unique_ptr<Graph>> Build(const Parts& parts,
                                                            const CpuBackend& cpu,
                                                            BatchShape shape);

  BatchShape shape() const { return shape_; }
  ggml_cgraph* graph() const { return graph_; }
  int32_t* tokens() const { return static_cast<int32_t*>(tokens_->data); }        // [rows]
  int32_t* positions() const { return static_cast<int32_t*>(positions_->data); }  // [rows]
  // Rows whose logits are wanted, [logit_rows]; null when all or none are.
  int32_t* logit_row_ids() const {
    return logit_row_ids_ ? static_cast<int32_t*>(logit_row_ids_->data) : nullptr;
  }
  // [logit_rows, vocab] after a run of the last layer.
  const float* logits() const { return static_cast<const float*>(logits_->data); }
  // Between layers, [rows, embedding]: what a graph begins with that does not begin with the first
  // layer (to be written before a run), and what one ends with that does not end with the last.
  float* hidden_in() const { return static_cast<float*>(hidden_in_->data); }
  const float* hidden_out() const { return static_cast<const float*>(hidden_out_->data); }

 private:
  friend class GraphBuilder;
  struct LayerCall {
    Attention* attention;
    LayerId layer;
  };
  BatchShape shape_;
  GgmlContextPtr context_;
  GraphAllocatorPtr allocator_;  // null: borrowed
  ggml_cgraph* graph_ = nullptr;
  ggml_tensor *tokens_ = nullptr, *positions_ = nullptr, *logit_row_ids_ = nullptr,
              *logits_ = nullptr, *hidden_in_ = nullptr, *hidden_out_ = nullptr;
  std::vector<LayerCall> calls_;  // one per layer; nodes point into it
};

}  // namespace qevict
