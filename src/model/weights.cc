#include "model/weights.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

namespace qevict {
namespace {

constexpr uintptr_t kTensorAlignment = 32;  // what ggml's kernels expect

// Pages that were copied into a repacked or unpacked weight need not stay resident.
void ReleasePages(const uint8_t* bytes, size_t size) {
  const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(bytes) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(bytes) + size) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void ReleasePages(const StoredWeight& weight, size_t inputs) {
  ReleasePages(weight.bytes, weight.outputs * ggml_row_size(weight.type, int64_t(inputs)));
}

void ProductNode(ggml_tensor* node, int thread, int threads, void* product) {
  const ggml_tensor* x = node->src[0];
  static_cast<RowProduct*>(product)->Multiply(static_cast<const float*>(x->data),
                                              static_cast<float*>(node->data), uint32_t(x->ne[1]),
                                              size_t(thread), size_t(threads));
}

}  // namespace

ggml_tensor* Linear::ApplyProduct(ggml_context* context, RowProduct& product,
                                  ggml_tensor* x) const {
  return ggml_custom_4d(context, GGML_TYPE_F32, weight->ne[1], x->ne[1], 1, 1, &x, 1, ProductNode,
                        GGML_N_TASKS_MAX, &product);
}

ggml_tensor* Linear::Apply(ggml_context* context, ggml_tensor* x) const {
  if (blocks != nullptr) return ApplyProduct(context, *blocks, x);
  ggml_tensor* y = ggml_mul_mat(context, weight, x);
  return bias == nullptr ? y : ggml_add(context, y, bias);
}

void Linear::ReleaseFilePages() const {
  if (weight == nullptr || weight->data == stored.front().bytes) return;
  for (const StoredWeight& part : stored) ReleasePages(part, size_t(weight->ne[0]));
}

// Collects what goes where, then allocates each buffer of repacked or unpacked weights once and
// fills it.
class WeightLoader {
 public:
  WeightLoader(const GgufFile& file, const CpuBackend& cpu, const RunnerConfig& config,
               Weights& weights)
      : file_(file), cpu_(cpu), config_(config), weights_(weights), mapped_context_(NewContext()) {}

  // nullptr: the file has no such tensor.
  ggml_tensor* Mapped(const std::string& name) {
    const ggml_tensor* stored = file_.FindTensor(name);
    return stored == nullptr ? nullptr : Map(stored, stored->ne[1], name);
  }

  Linear LoadLinear(const std::string& name) {
    const ggml_tensor* stored = file_.FindTensor(name + ".weight");
    if (stored == nullptr) return {};
    return MakeLinear({stored}, name, Mapped(name + ".bias"));
  }

  // Two products over the same input as one. Null when their layouts do not allow it.
  Linear LoadJoined(const std::string& first, const std::string& second) {
    const ggml_tensor* a = file_.FindTensor(first + ".weight");
    const ggml_tensor* b = file_.FindTensor(second + ".weight");
    if (a == nullptr || b == nullptr || a->type != b->type ||
        file_.FindTensor(first + ".bias") != nullptr ||
        file_.FindTensor(second + ".bias") != nullptr) {
      return {};
    }
    return MakeLinear({a, b}, first + "+" + second, nullptr);
  }

  Status Finish() {
    if (misaligned_) {
      return Fail(ErrorCode::kUnsupported,
                  file_.path() +
                      " aligns its tensors to less than 32 bytes; convert it again with the "
                      "default general.alignment");
    }
    ggml_backend_buffer_t mapping =
        ggml_backend_dev_buffer_from_host_ptr(cpu_.device(), const_cast<uint8_t*>(file_.mapping()),
                                              file_.file_bytes(), file_.file_bytes());
    if (mapping == nullptr)
      return Fail(ErrorCode::kInternal,
                  "ggml refused the memory-mapped weights of " + file_.path());
    weights_.buffers_.emplace_back(mapping);
    ggml_backend_buffer_set_usage(mapping, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    for (const auto& [tensor, bytes] : mapped_) {
      if (ggml_backend_tensor_alloc(mapping, tensor, const_cast<uint8_t*>(bytes)) !=
          GGML_STATUS_SUCCESS) {
        return Fail(ErrorCode::kInternal, "ggml refused a memory-mapped weight of " + file_.path());
      }
    }
    for (auto& [type, group] : copied_) QEVICT_RETURN_IF_ERROR(FillCopies(type, group));
    return FillBlocks();
  }

 private:
  // Repacked or unpacked.
  struct Copy {
    ggml_tensor* tensor;
    std::vector<const ggml_tensor*> parts;
  };
  struct CopyGroup {
    ggml_context* context = nullptr;
    std::vector<Copy> tensors;
  };
  struct Block {
    BlockWeights* weights;
    std::vector<StoredWeight> parts;
    const ggml_tensor* bias;
    size_t inputs;
  };

  bool unpacks() const { return config_.products == Products::kFloat32; }

  Linear MakeLinear(const std::vector<const ggml_tensor*>& parts, const std::string& name,
                    ggml_tensor* bias) {
    Linear linear;
    linear.bias = bias;
    for (const ggml_tensor* part : parts)
      linear.stored.push_back({file_.TensorBytes(part), part->type, uint32_t(part->ne[1])});
    const auto inputs = uint32_t(parts[0]->ne[0]);
    if (config_.products == Products::kFastest)
      linear.blocks = BlockWeights::Plan(linear.stored, inputs, config_.isa);
    if (linear.blocks == nullptr) {
      linear.weight = Place(parts, name);
      return linear;
    }
    blocks_.push_back({linear.blocks.get(), linear.stored, bias, inputs});
    int64_t outputs = 0;
    for (const StoredWeight& part : linear.stored) outputs += part.outputs;
    linear.weight = ggml_new_tensor_2d(mapped_context_, parts[0]->type, inputs, outputs);
    ggml_set_name(linear.weight, name.c_str());
    return linear;
  }

  ggml_context* NewContext() {
    const size_t tensors = file_.Tensors().size() * 2 + 16;
    weights_.contexts_.emplace_back(
        ggml_init({tensors * ggml_tensor_overhead(), nullptr, /*no_alloc=*/true}));
    return weights_.contexts_.back().get();
  }

  ggml_tensor* Map(const ggml_tensor* stored, int64_t rows, const std::string& name) {
    const uint8_t* bytes = file_.TensorBytes(stored);
    misaligned_ |= reinterpret_cast<uintptr_t>(bytes) % kTensorAlignment != 0;
    ggml_tensor* tensor = rows == stored->ne[1] ? ggml_dup_tensor(mapped_context_, stored)
                                                : ggml_new_tensor_2d(mapped_context_, stored->type,
                                                                     stored->ne[0], rows);
    ggml_set_name(tensor, name.c_str());
    mapped_.emplace_back(tensor, bytes);
    return tensor;
  }

  // The parts stacked along their outputs: unpacked when that is asked for, else repacked when ggml
  // can, else mapped when they follow each other in the file, else null.
  ggml_tensor* Place(const std::vector<const ggml_tensor*>& parts, const std::string& name) {
    int64_t rows = 0;
    bool adjacent = true;
    for (size_t i = 0; i < parts.size(); ++i) {
      rows += parts[i]->ne[1];
      adjacent &= i == 0 || file_.TensorBytes(parts[i - 1]) + ggml_nbytes(parts[i - 1]) ==
                                file_.TensorBytes(parts[i]);
    }
    const ggml_type type = unpacks() ? GGML_TYPE_F32 : parts[0]->type;
    if (ggml_backend_buffer_type_t buffer_type = unpacks()
                                                     ? ggml_backend_dev_buffer_type(cpu_.device())
                                                     : RepackedType(type, parts[0]->ne[0], rows)) {
      CopyGroup& group = copied_[buffer_type];
      if (group.context == nullptr) group.context = NewContext();
      ggml_tensor* tensor = ggml_new_tensor_2d(group.context, type, parts[0]->ne[0], rows);
      ggml_set_name(tensor, name.c_str());
      group.tensors.push_back({tensor, parts});
      return tensor;
    }
    return adjacent ? Map(parts[0], rows, name) : nullptr;
  }

  // The first repacked buffer type that multiplies such a weight, or null.
  ggml_backend_buffer_type_t RepackedType(ggml_type type, int64_t inputs, int64_t rows) const {
    for (ggml_backend_buffer_type_t buffer_type : cpu_.repacked_types()) {
      GgmlContextPtr context(ggml_init({8 * ggml_tensor_overhead(), nullptr, /*no_alloc=*/true}));
      ggml_tensor* weight = ggml_new_tensor_2d(context.get(), type, inputs, rows);
      ggml_tensor* product = ggml_mul_mat(
          context.get(), weight, ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, inputs, 512));
      BackendBufferPtr empty(ggml_backend_buft_alloc_buffer(buffer_type, 0));
      weight->buffer = empty.get();
      if (ggml_backend_dev_supports_op(cpu_.device(), product)) return buffer_type;
    }
    return nullptr;
  }

  Status FillCopies(ggml_backend_buffer_type_t type, const CopyGroup& group) {
    size_t bytes = 0;
    for (const Copy& copy : group.tensors) bytes += ggml_nbytes(copy.tensor);
    // ggml asks malloc alone, which promises memory that is not there. So ours is asked first, and
    // gives back at once what no page of was touched.
    const bool fits = AlignedBuffer::Allocate(bytes).has_value();
    ggml_backend_buffer_t buffer =
        fits ? ggml_backend_alloc_ctx_tensors_from_buft(group.context, type) : nullptr;
    if (buffer == nullptr) {
      return Fail(ErrorCode::kOutOfMemory, "not enough memory for the weights of " + file_.path() +
                                               ", which take " + std::to_string(bytes >> 20) +
                                               " MiB beside the file; use a smaller model" +
                                               (unpacks() ? ", or drop --products f32" : ""));
    }
    weights_.buffers_.emplace_back(buffer);
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    AlignedBuffer joined;
    for (const Copy& copy : group.tensors) {
      if (unpacks()) {
        Unpack(copy);
      } else {
        QEVICT_RETURN_IF_ERROR(Repack(copy, joined));
      }
      for (const ggml_tensor* part : copy.parts)
        ReleasePages(file_.TensorBytes(part), ggml_nbytes(part));
    }
    return {};
  }

  Status FillBlocks() {
    BlockWeights::Scratch scratch;
    for (const Block& block : blocks_)
      scratch.thread_bytes = std::max(scratch.thread_bytes, block.weights->scratch_bytes());
    if (!blocks_.empty()) {
      QEVICT_ASSIGN_OR_RETURN(weights_.block_scratch_,
                              AlignedBuffer::Allocate(scratch.thread_bytes * config_.threads));
      scratch.base = weights_.block_scratch_.as<uint8_t>();
    }
    for (const Block& block : blocks_) {
      const auto* bias =
          block.bias == nullptr ? nullptr : static_cast<const float*>(block.bias->data);
      QEVICT_RETURN_IF_ERROR(block.weights->Pack(block.parts, bias, scratch));
      for (const StoredWeight& part : block.parts) ReleasePages(part, block.inputs);
    }
    return {};
  }

  // ggml's buffer repacks what it is given, which must be the whole tensor: several parts are put
  // together in `joined`, which is kept from weight to weight.
  Status Repack(const Copy& copy, AlignedBuffer& joined) const {
    const size_t bytes = ggml_nbytes(copy.tensor);
    const uint8_t* whole = file_.TensorBytes(copy.parts[0]);
    if (copy.parts.size() > 1) {
      if (joined.size_bytes() < bytes) {
        joined = {};
        QEVICT_ASSIGN_OR_RETURN(joined, AlignedBuffer::Allocate(bytes));
      }
      auto* next = joined.as<uint8_t>();
      for (const ggml_tensor* part : copy.parts)
        next = std::copy_n(file_.TensorBytes(part), ggml_nbytes(part), next);
      whole = joined.as<uint8_t>();
    }
    ggml_backend_tensor_set(copy.tensor, whole, 0, bytes);
    return {};
  }

  void Unpack(const Copy& copy) const {
    float* into = static_cast<float*>(copy.tensor->data);
    for (const ggml_tensor* part : copy.parts) {
      const StoredWeight stored{file_.TensorBytes(part), part->type, uint32_t(part->ne[1])};
      stored.Unpack(0, stored.outputs, size_t(part->ne[0]), into);
      into += ggml_nelements(part);
    }
  }

  const GgufFile& file_;
  const CpuBackend& cpu_;
  RunnerConfig config_;
  Weights& weights_;
  ggml_context* mapped_context_;
  std::vector<std::pair<ggml_tensor*, const uint8_t*>> mapped_;
  std::map<ggml_backend_buffer_type_t, CopyGroup> copied_;
  std::vector<Block> blocks_;
  bool misaligned_ = false;
};

Result<Weights> Weights::Load(const GgufFile& file, const Hyperparameters& shape,
                              const CpuBackend& cpu, const RunnerConfig& config) {
  Weights weights;
  WeightLoader loader(file, cpu, config, weights);
  weights.token_embedding = loader.Mapped("token_embd.weight");
  weights.output_norm = loader.Mapped("output_norm.weight");
  weights.output = loader.LoadLinear("output");
  if (!weights.output) weights.output = loader.LoadLinear("token_embd");
  weights.rope_factors = loader.Mapped("rope_freqs.weight");
  for (uint32_t l = 0; l < shape.layers; ++l) {
    const std::string block = "blk." + std::to_string(l) + ".";
    LayerWeights& layer = weights.layers.emplace_back();
    layer.attention_norm = loader.Mapped(block + "attn_norm.weight");
    layer.q = loader.LoadLinear(block + "attn_q");
    layer.k = loader.LoadLinear(block + "attn_k");
    layer.v = loader.LoadLinear(block + "attn_v");
    layer.attention_out = loader.LoadLinear(block + "attn_output");
    layer.q_norm = loader.Mapped(block + "attn_q_norm.weight");
    layer.k_norm = loader.Mapped(block + "attn_k_norm.weight");
    layer.attention_post_norm = loader.Mapped(block + "post_attention_norm.weight");
    layer.feed_forward_norm = loader.Mapped(block + "ffn_norm.weight");
    layer.feed_forward_post_norm = loader.Mapped(block + "post_ffw_norm.weight");
    layer.gate_up = loader.LoadJoined(block + "ffn_gate", block + "ffn_up");
    if (!layer.gate_up) {
      layer.gate = loader.LoadLinear(block + "ffn_gate");
      layer.up = loader.LoadLinear(block + "ffn_up");
    }
    layer.down = loader.LoadLinear(block + "ffn_down");
  }
  QEVICT_RETURN_IF_ERROR(loader.Finish());
  return weights;
}

}  // namespace qevict
