#include "model/validate_tensors.h"

#include <fmt/format.h>
#include <ggml.h>

#include <array>
#include <string>
#include <unordered_set>
#include <vector>

namespace qevict {
namespace {

enum class Need { kRequired, kOptional };
enum class Kind {
  kMatrix,  // weights of a product, any type that ggml computes with
  kVector,  // norms, biases and RoPE factors, which ggml takes as f32 only
};

class TensorChecker {
 public:
  explicit TensorChecker(const GgufFile& file) : file_(file) {}

  Status Matrix(const std::string& name, uint64_t inputs, uint64_t outputs,
                Need need = Need::kRequired) {
    return Check(name, {inputs, outputs}, Kind::kMatrix, need);
  }
  Status Vector(const std::string& name, uint64_t size, Need need = Need::kRequired) {
    return Check(name, {size, 1}, Kind::kVector, need);
  }

  // A tensor that nobody asked for may change the result (expert weights, attention sinks, scales),
  // so it is refused by name.
  Status RefuseOthers() const {
    for (const ggml_tensor* tensor : file_.Tensors()) {
      const std::string name = ggml_get_name(tensor);
      // Heads of rerankers and embedding models, and a RoPE table that old converters wrote: no
      // part of the logits.
      const bool unused = name.starts_with("cls.") || name.starts_with("dense_") ||
                          name.ends_with(".attn_rot_embd");
      if (!unused && !known_.contains(name)) {
        return Fail(
            ErrorCode::kUnsupported,
            fmt::format("'{}' has a tensor '{}' that is not supported for this architecture",
                        file_.path(), name));
      }
    }
    return {};
  }

 private:
  Status Check(const std::string& name, std::array<uint64_t, 2> shape, Kind kind, Need need) {
    known_.insert(name);
    const ggml_tensor* tensor = file_.FindTensor(name);
    if (tensor == nullptr) {
      if (need == Need::kOptional) return {};
      return Fail(ErrorCode::kBadFile,
                  fmt::format("'{}' is damaged: tensor '{}' is missing", file_.path(), name));
    }
    const bool same_shape = uint64_t(tensor->ne[0]) == shape[0] &&
                            uint64_t(tensor->ne[1]) == shape[1] && tensor->ne[2] == 1 &&
                            tensor->ne[3] == 1;
    if (!same_shape) {
      return Fail(
          ErrorCode::kBadFile,
          fmt::format("'{}' is damaged: tensor '{}' has shape [{}, {}, {}, {}] instead of [{}, {}]",
                      file_.path(), name, tensor->ne[0], tensor->ne[1], tensor->ne[2],
                      tensor->ne[3], shape[0], shape[1]));
    }
    if (!Computable(tensor->type, kind)) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("'{}' stores tensor '{}' as {}, which is not supported there",
                              file_.path(), name, ggml_type_name(tensor->type)));
    }
    return {};
  }

  static bool Computable(ggml_type type, Kind kind) {
    if (kind == Kind::kVector || type == GGML_TYPE_F32) return type == GGML_TYPE_F32;
    if (type == GGML_TYPE_F16 || type == GGML_TYPE_BF16) return true;
    // NVFP4 needs scale tensors beside the weights. Types without to_float are for activations
    // only.
    return ggml_is_quantized(type) && type != GGML_TYPE_NVFP4 &&
           ggml_get_type_traits(type)->to_float != nullptr;
  }

  const GgufFile& file_;
  std::unordered_set<std::string> known_;
};

Status CheckAttention(TensorChecker& check, const std::string& block, const Hyperparameters& h) {
  const uint64_t q = uint64_t{h.heads} * h.head_dim, kv = uint64_t{h.kv_heads} * h.head_dim;
  QEVICT_RETURN_IF_ERROR(check.Vector(block + "attn_norm.weight", h.embedding));
  QEVICT_RETURN_IF_ERROR(check.Matrix(block + "attn_q.weight", h.embedding, q));
  QEVICT_RETURN_IF_ERROR(check.Matrix(block + "attn_k.weight", h.embedding, kv));
  QEVICT_RETURN_IF_ERROR(check.Matrix(block + "attn_v.weight", h.embedding, kv));
  QEVICT_RETURN_IF_ERROR(check.Vector(block + "attn_q.bias", q, Need::kOptional));
  QEVICT_RETURN_IF_ERROR(check.Vector(block + "attn_k.bias", kv, Need::kOptional));
  QEVICT_RETURN_IF_ERROR(check.Vector(block + "attn_v.bias", kv, Need::kOptional));
  QEVICT_RETURN_IF_ERROR(check.Matrix(block + "attn_output.weight", q, h.embedding));
  if (h.family == Family::kLlama) {
    QEVICT_RETURN_IF_ERROR(check.Vector(block + "attn_output.bias", h.embedding, Need::kOptional));
  }
  if (h.family == Family::kQwen3 || h.family == Family::kGemma3) {
    QEVICT_RETURN_IF_ERROR(check.Vector(block + "attn_q_norm.weight", h.head_dim));
    QEVICT_RETURN_IF_ERROR(check.Vector(block + "attn_k_norm.weight", h.head_dim));
  }
  if (h.family == Family::kGemma3) {
    QEVICT_RETURN_IF_ERROR(check.Vector(block + "post_attention_norm.weight", h.embedding));
  }
  return {};
}

Status CheckFeedForward(TensorChecker& check, const std::string& block, const Hyperparameters& h) {
  QEVICT_RETURN_IF_ERROR(check.Vector(block + "ffn_norm.weight", h.embedding));
  QEVICT_RETURN_IF_ERROR(check.Matrix(block + "ffn_gate.weight", h.embedding, h.feed_forward));
  QEVICT_RETURN_IF_ERROR(check.Matrix(block + "ffn_up.weight", h.embedding, h.feed_forward));
  QEVICT_RETURN_IF_ERROR(check.Matrix(block + "ffn_down.weight", h.feed_forward, h.embedding));
  if (h.family == Family::kLlama) {
    QEVICT_RETURN_IF_ERROR(check.Vector(block + "ffn_gate.bias", h.feed_forward, Need::kOptional));
    QEVICT_RETURN_IF_ERROR(check.Vector(block + "ffn_up.bias", h.feed_forward, Need::kOptional));
    QEVICT_RETURN_IF_ERROR(check.Vector(block + "ffn_down.bias", h.embedding, Need::kOptional));
  }
  if (h.family == Family::kGemma3) {
    QEVICT_RETURN_IF_ERROR(check.Vector(block + "post_ffw_norm.weight", h.embedding));
  }
  return {};
}

}  // namespace

Status ValidateTensors(const GgufFile& file, const Hyperparameters& h) {
  TensorChecker check(file);
  QEVICT_RETURN_IF_ERROR(check.Matrix("token_embd.weight", h.embedding, h.vocab));
  QEVICT_RETURN_IF_ERROR(check.Vector("output_norm.weight", h.embedding));
  QEVICT_RETURN_IF_ERROR(check.Matrix("output.weight", h.embedding, h.vocab, Need::kOptional));
  if (h.family == Family::kQwen2 && file.FindTensor("output.weight") != nullptr) {
    QEVICT_RETURN_IF_ERROR(check.Vector("output.bias", h.vocab, Need::kOptional));
  }
  if (h.family == Family::kLlama) {
    QEVICT_RETURN_IF_ERROR(check.Vector("rope_freqs.weight", h.rope_dims / 2, Need::kOptional));
  }
  for (uint32_t l = 0; l < h.layers; ++l) {
    const std::string block = fmt::format("blk.{}.", l);
    QEVICT_RETURN_IF_ERROR(CheckAttention(check, block, h));
    QEVICT_RETURN_IF_ERROR(CheckFeedForward(check, block, h));
  }
  return check.RefuseOthers();
}

}  // namespace qevict
