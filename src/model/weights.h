// The weights of a model: memory-mapped where ggml computes from the file's own layout, copied once
// where it has a repacked layout that multiplies faster, or unpacked to f32 where that is asked
// for.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <vector>

#include "model/cpu_backend.h"
#include "model/gguf_file.h"
#include "model/hyperparameters.h"
#include "model/products.h"

namespace qevict {

// A weight as the model file holds it.
struct StoredWeight {
  const uint8_t* bytes = nullptr;  // mapped, [outputs] rows
  ggml_type type = GGML_TYPE_F32;
  uint32_t outputs = 0;
  // to: [rows, inputs], of the rows from `first` on.
  void Unpack(uint32_t first, uint32_t rows, size_t inputs, float* to) const;
};

// y = W x + b by ggml. Products of a long prompt may be another library's
// (model/layer_products.h).
struct Linear {
  ggml_tensor* weight = nullptr;     // [inputs, outputs]
  ggml_tensor* bias = nullptr;       // [outputs] or null
  std::vector<StoredWeight> stored;  // stacked along the outputs
  // Pages of the file that were read need not stay resident, unless ggml multiplies from them.
  void ReleaseFilePages() const;
  explicit operator bool() const { return weight != nullptr; }
  // x: [inputs, rows] -> [outputs, rows]
  ggml_tensor* Apply(ggml_context* context, ggml_tensor* x) const;
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
  // `file` must outlive the weights and has passed ValidateTensors. Linears are f32 in memory where
  // `products` is kFloat32, so that ggml rounds no activations. Errors: kUnsupported (tensors that
  // are aligned to less than 32 bytes), kOutOfMemory, kInternal (ggml refuses the weights).
  [[nodiscard]] static Result<Weights> Load(const GgufFile& file, const Hyperparameters& shape,
                                            const CpuBackend& cpu, Products products);

  ggml_tensor* token_embedding = nullptr;  // [embedding, vocab]
  ggml_tensor* output_norm = nullptr;
  Linear output;  // the token embedding again when the file has none of its own
  ggml_tensor* rope_factors = nullptr;  // Llama 3.1: [rope_dims / 2], or null
  std::vector<LayerWeights> layers;

 private:
  friend class WeightLoader;
  std::vector<GgmlContextPtr> contexts_;
  std::vector<BackendBufferPtr> buffers_;
};

}  // namespace qevict
