// The weights of a model: memory-mapped where ggml computes from the file's own layout, copied once
// where it or our own kernel has a layout that multiplies faster, or unpacked to f32 where that is
// asked for.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/aligned_buffer.h"
#include "model/block_weights.h"
#include "model/cpu_backend.h"
#include "model/gguf_file.h"
#include "model/hyperparameters.h"
#include "model/runner_config.h"
#include "model/stored_weight.h"

namespace qevict {

// y = W x + b, by our own kernel where the weight is in blocks that it has a layout for, else by
// ggml. Products of a long prompt may be another library's (model/layer_products.h).
struct Linear {
  ggml_tensor* weight = nullptr;         // [inputs, outputs]; no memory where there are `blocks`
  ggml_tensor* bias = nullptr;           // [outputs] or null
  std::vector<StoredWeight> stored;      // stacked along the outputs
  std::unique_ptr<BlockWeights> blocks;  // null: ggml multiplies
  // Pages of the file that were read need not stay resident, unless ggml multiplies from them.
  void ReleaseFilePages() const;
  explicit operator bool() const { return weight != nullptr; }
  // x: [inputs, rows] -> [outputs, rows]
  ggml_tensor* Apply(ggml_context* context, ggml_tensor* x) const;
  // The same by `product`, a product with this weight and bias that outlives the graph.
  ggml_tensor* ApplyProduct(ggml_context* context, RowProduct& product, ggml_tensor* x) const;
};

struct LayerWeights {
  ggml_tensor* attention_norm = nullptr;
  Linear q, k, v, attention_out;
  ggml_tensor *q_norm = nullptr, *k_norm = nullptr;  // qwen3, gemma3: per-head RMS norm
  ggml_tensor *attention_post_norm = nullptr, *feed_forward_post_norm = nullptr;  // gemma3
  ggml_tensor* feed_forward_norm = nullptr;
  Linear gate_up;   // gate and up in one product, gate first; or null, and then
  Linear gate, up;  // apart
  Linear down;
};

class Weights {
 public:
  // `file` must outlive the weights and has passed ValidateTensors. Our own kernel is of kFastest
  // alone; kFloat32 unpacks every linear. Errors: kUnsupported (tensors that are aligned to less
  // than 32 bytes), kOutOfMemory, kInternal (ggml refuses the weights).
  [[nodiscard]] static Result<Weights> Load(const GgufFile& file, const Hyperparameters& shape,
                                            const CpuBackend& cpu, const RunnerConfig& config);

  ggml_tensor* token_embedding = nullptr;  // [embedding, vocab]
  ggml_tensor* output_norm = nullptr;
  Linear output;  // the token embedding again when the file has none of its own
  ggml_tensor* rope_factors = nullptr;  // Llama 3.1: [rope_dims / 2], or null
  std::vector<LayerWeights> layers;

 private:
  friend class WeightLoader;
  std::vector<GgmlContextPtr> contexts_;
  std::vector<BackendBufferPtr> buffers_;
  AlignedBuffer block_scratch_;  // of all `blocks`: a graph multiplies one after another
};

}  // namespace qevict
