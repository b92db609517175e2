#include "model/hyperparameters.h"

#include <fmt/format.h>
#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "model/gguf_scan.h"

namespace qevict {
namespace {

struct FamilyTraits {
  std::string_view architecture;
  Family family;
  RopeLayout rope_layout;
};
constexpr FamilyTraits kFamilies[] = {
    {"llama", Family::kLlama, RopeLayout::kInterleaved},
    {"qwen2", Family::kQwen2, RopeLayout::kHalves},
    {"qwen3", Family::kQwen3, RopeLayout::kHalves},
    {"gemma3", Family::kGemma3, RopeLayout::kHalves},
};

// Beyond any model that exists, and so small that products of two fit easily in 64 bits.
constexpr uint32_t kMaxLayers = 512;
constexpr uint32_t kMaxWidth = 1u << 20;
constexpr uint32_t kMaxHeads = 4096;
constexpr uint32_t kMaxContext = std::numeric_limits<int32_t>::max();  // ggml's positions

struct Range {
  uint32_t low, high;
};

// Reads keys below "ARCHITECTURE.".
class Keys {
 public:
  Keys(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  tl::unexpected<Error> Bad(std::string_view key, std::string_view what) const {
    return Fail(ErrorCode::kBadFile,
                fmt::format("'{}' is damaged: '{}{}' {}", file_.path(), prefix_, key, what));
  }
  tl::unexpected<Error> Unsupported(std::string_view feature) const {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("'{}' uses {}, which is not supported", file_.path(), feature));
  }

  Result<std::optional<uint32_t>> FindU32(std::string_view key) const {
    return file_.FindU32(prefix_ + std::string(key));
  }
  Result<std::optional<float>> FindF32(std::string_view key) const {
    return file_.FindF32(prefix_ + std::string(key));
  }
  Result<std::optional<bool>> FindBool(std::string_view key) const {
    return file_.FindBool(prefix_ + std::string(key));
  }
  Result<std::optional<std::string>> FindString(std::string_view key) const {
    return file_.FindString(prefix_ + std::string(key));
  }
  Result<std::optional<std::vector<uint32_t>>> FindU32Array(std::string_view key) const {
    return file_.FindU32Array(prefix_ + std::string(key));
  }

  // An absent key takes the fallback; nullopt makes the key required.
  Result<uint32_t> U32(std::string_view key, Range range,
                       std::optional<uint32_t> fallback = {}) const {
    QEVICT_ASSIGN_OR_RETURN(const std::optional<uint32_t> value, FindU32(key));
    return InRange(key, value ? value : fallback, range);
  }

  // One number, or one per layer that must all be equal.
  Result<uint32_t> SameInEveryLayer(std::string_view key, uint32_t layers, Range range,
                                    std::optional<uint32_t> fallback = {}) const {
    QEVICT_ASSIGN_OR_RETURN(const auto values, FindU32Array(key));
    if (!values) return InRange(key, fallback, range);
    if (values->size() != 1 && values->size() != layers) {
      return Bad(key, fmt::format("has {} values for {} layers", values->size(), layers));
    }
    if (std::ranges::adjacent_find(*values, std::not_equal_to<>()) != values->end()) {
      return Unsupported(fmt::format("another '{}{}' in some layers than in others", prefix_, key));
    }
    return InRange(key, values->front(), range);
  }

  Result<float> PositiveF32(std::string_view key, std::optional<float> fallback = {}) const {
    QEVICT_ASSIGN_OR_RETURN(const std::optional<float> found, FindF32(key));
    const std::optional<float> value = found ? found : fallback;
    if (!value) return Bad(key, "is missing");
    if (!std::isfinite(*value) || *value <= 0.0f)
      return Bad(key, fmt::format("is {}, not a positive number", *value));
    return *value;
  }

 private:
  Result<uint32_t> InRange(std::string_view key, std::optional<uint32_t> value, Range range) const {
    if (!value) return Bad(key, "is missing");
    if (*value < range.low || *value > range.high) {
      return Bad(key, fmt::format("is {}, not in {} .. {}", *value, range.low, range.high));
    }
    return *value;
  }

  const GgufFile& file_;
  std::string prefix_;
};

Result<FamilyTraits> FindFamily(const GgufFile& file) {
  QEVICT_ASSIGN_OR_RETURN(const auto architecture, file.FindString("general.architecture"));
  if (!architecture) {
    return Fail(ErrorCode::kBadFile,
                fmt::format("'{}' does not name its architecture; it is not a model", file.path()));
  }
  std::string supported;
  for (const FamilyTraits& traits : kFamilies) {
    if (traits.architecture == *architecture) return traits;
    supported += supported.empty() ? "" : ", ";
    supported += traits.architecture;
  }
  return Fail(ErrorCode::kUnsupported,
              fmt::format("architecture '{}' of '{}' is not supported; supported are {}",
                          Printable(*architecture), file.path(), supported));
}

// Features that change the result and that the graphs do not have.
Status RefuseForeignFeatures(const GgufFile& file, const Keys& keys) {
  struct Feature {
    std::string_view key, name;
  };
  constexpr Feature kCounts[] = {{"expert_count", "a mixture of experts"},
                                 {"expert_used_count", "a mixture of experts"},
                                 {"nextn_predict_layers", "multi-token prediction layers"}};
  for (const Feature& feature : kCounts) {
    QEVICT_ASSIGN_OR_RETURN(const auto values, keys.FindU32Array(feature.key));
    if (values && std::ranges::any_of(*values, [](uint32_t v) { return v != 0; }))
      return keys.Unsupported(feature.name);
  }
  constexpr Feature kAmounts[] = {{"attention.max_alibi_bias", "ALiBi position biases"},
                                  {"attention.clamp_kqv", "clamped queries, keys and values"},
                                  {"attn_logit_softcapping", "soft-capped attention scores"}};
  for (const Feature& feature : kAmounts) {
    QEVICT_ASSIGN_OR_RETURN(const auto value, keys.FindF32(feature.key));
    if (value && *value != 0.0f) return keys.Unsupported(feature.name);
  }
  QEVICT_ASSIGN_OR_RETURN(const auto causal, keys.FindBool("attention.causal"));
  if (causal && !*causal) return keys.Unsupported("attention in both directions");
  QEVICT_ASSIGN_OR_RETURN(const auto parts, file.FindU32("split.count"));
  if (parts && *parts > 1) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("'{}' is one of {} parts of a model; join them into one file first",
                            file.path(), *parts));
  }
  return {};
}

Status ReadSizes(const GgufFile& file, const Keys& keys, Hyperparameters& h) {
  QEVICT_ASSIGN_OR_RETURN(h.layers, keys.U32("block_count", {1, kMaxLayers}));
  QEVICT_ASSIGN_OR_RETURN(h.context_train, keys.U32("context_length", {1, kMaxContext}));
  QEVICT_ASSIGN_OR_RETURN(h.embedding, keys.U32("embedding_length", {1, kMaxWidth}));
  QEVICT_ASSIGN_OR_RETURN(h.feed_forward,
                          keys.SameInEveryLayer("feed_forward_length", h.layers, {1, kMaxWidth}));
  QEVICT_ASSIGN_OR_RETURN(h.rms_epsilon, keys.PositiveF32("attention.layer_norm_rms_epsilon"));

  const ggml_tensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr) {
    return Fail(
        ErrorCode::kBadFile,
        fmt::format("'{}' has no tensor 'token_embd.weight'; it is not a model", file.path()));
  }
  if (embedding->ne[1] > kMaxContext) {
    return Fail(ErrorCode::kBadFile, fmt::format("'{}' is damaged: its vocabulary has {} entries",
                                                 file.path(), embedding->ne[1]));
  }
  h.vocab = static_cast<uint32_t>(embedding->ne[1]);
  QEVICT_ASSIGN_OR_RETURN(const auto tokens, file.FindArrayLength("tokenizer.ggml.tokens"));
  if (!tokens) {
    return Fail(
        ErrorCode::kBadFile,
        fmt::format("'{}' has no tokenizer ('tokenizer.ggml.tokens' is missing)", file.path()));
  }
  if (*tokens != h.vocab) {
    return Fail(
        ErrorCode::kBadFile,
        fmt::format("'{}' is damaged: its tokenizer has {} tokens but its embedding has {} rows",
                    file.path(), *tokens, h.vocab));
  }
  return {};
}

Status ReadHeads(const Keys& keys, Hyperparameters& h) {
  QEVICT_ASSIGN_OR_RETURN(h.heads,
                          keys.SameInEveryLayer("attention.head_count", h.layers, {1, kMaxHeads}));
  QEVICT_ASSIGN_OR_RETURN(h.kv_heads, keys.SameInEveryLayer("attention.head_count_kv", h.layers,
                                                            {1, kMaxHeads}, h.heads));
  if (h.heads % h.kv_heads != 0) {
    return keys.Bad("attention.head_count",
                    fmt::format("is {}, not a multiple of the {} KV heads", h.heads, h.kv_heads));
  }
  if (h.group() > kMaxGroup) {
    return keys.Unsupported(
        fmt::format("{} query heads for each KV head (at most {})", h.group(), kMaxGroup));
  }
  const uint32_t default_dim = h.embedding / h.heads;
  QEVICT_ASSIGN_OR_RETURN(h.head_dim,
                          keys.U32("attention.key_length", {1, kMaxWidth}, default_dim));
  QEVICT_ASSIGN_OR_RETURN(const uint32_t value_dim,
                          keys.U32("attention.value_length", {1, kMaxWidth}, default_dim));
  if (h.head_dim != value_dim) {
    return keys.Unsupported(
        fmt::format("keys of {} and values of {} channels", h.head_dim, value_dim));
  }
  if (h.head_dim % 16 != 0 || h.head_dim > kMaxSupportedHeadDim) {
    return keys.Unsupported(
        fmt::format("heads of {} channels (supported are multiples of 16 up to {})", h.head_dim,
                    kMaxSupportedHeadDim));
  }
  for (std::string_view key : {"attention.key_length_swa", "attention.value_length_swa"}) {
    QEVICT_ASSIGN_OR_RETURN(const auto dim, keys.FindU32(key));
    if (dim && *dim != h.head_dim)
      return keys.Unsupported("other head sizes in sliding-window layers");
  }
  return {};
}

Status ReadRope(const Keys& keys, Hyperparameters& h) {
  QEVICT_ASSIGN_OR_RETURN(h.rope_dims,
                          keys.U32("rope.dimension_count", {2, kMaxWidth}, h.head_dim));
  QEVICT_ASSIGN_OR_RETURN(const auto swa_dims, keys.FindU32("rope.dimension_count_swa"));
  const bool partial =
      h.rope_dims < h.head_dim && h.rope_dims % 2 == 0 && h.family == Family::kGemma3;
  if ((h.rope_dims != h.head_dim && !partial) || (swa_dims && *swa_dims != h.rope_dims)) {
    return keys.Unsupported(
        fmt::format("RoPE over {} of {} channels", swa_dims.value_or(h.rope_dims), h.head_dim));
  }
  QEVICT_ASSIGN_OR_RETURN(h.rope_base, keys.PositiveF32("rope.freq_base", 10000.0f));

  RopeScaling& scaling = h.rope_scaling;
  QEVICT_ASSIGN_OR_RETURN(const auto type, keys.FindString("rope.scaling.type"));
  // libllama's default: a factor alone scales linearly.
  const std::string name = type.value_or("linear");
  if (name == "none") {
    scaling.kind = RopeScaling::Kind::kNone;
  } else if (name == "linear") {
    scaling.kind = RopeScaling::Kind::kLinear;
  } else if (name == "yarn") {
    scaling.kind = RopeScaling::Kind::kYarn;
  } else {
    return keys.Unsupported(fmt::format("RoPE scaling of type '{}'", Printable(name)));
  }
  QEVICT_ASSIGN_OR_RETURN(auto factor, keys.FindF32("rope.scaling.factor"));
  if (!factor) {
    QEVICT_ASSIGN_OR_RETURN(factor, keys.FindF32("rope.scale_linear"));  // the key's older name
  }
  if (factor && *factor != 0.0f && scaling.kind != RopeScaling::Kind::kNone) {  // 0 is "not scaled"
    if (!std::isfinite(*factor) || *factor < 0.0f)
      return keys.Bad("rope.scaling.factor", "is not a positive number");
    scaling.factor = *factor;
  }
  if (scaling.kind == RopeScaling::Kind::kLinear && scaling.factor == 1.0f)
    scaling.kind = RopeScaling::Kind::kNone;
  QEVICT_ASSIGN_OR_RETURN(scaling.attention_factor,
                          keys.PositiveF32("rope.scaling.attn_factor", 1.0f));
  QEVICT_ASSIGN_OR_RETURN(scaling.original_context, keys.U32("rope.scaling.original_context_length",
                                                             {0, kMaxContext}, h.context_train));
  if (scaling.original_context == 0) scaling.original_context = h.context_train;
  return {};
}

// Gemma 3: sliding-window layers, every sixth one global unless the file has its own pattern.
Status ReadSlidingWindow(const Keys& keys, Hyperparameters& h) {
  QEVICT_ASSIGN_OR_RETURN(h.swa_window, keys.U32("attention.sliding_window", {0, kMaxContext}, 0));
  h.swa_layer.assign(h.layers, false);
  if (h.swa_window == 0) return {};
  QEVICT_ASSIGN_OR_RETURN(h.rope_base_swa, keys.PositiveF32("rope.freq_base_swa", 10000.0f));
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  const auto scalar = keys.FindU32(kPattern);
  if (scalar) {
    const uint32_t period = scalar->value_or(6);  // 0: every layer slides
    for (uint32_t l = 0; l < h.layers; ++l) h.swa_layer[l] = period == 0 || l % period < period - 1;
  } else {
    QEVICT_ASSIGN_OR_RETURN(const auto per_layer, keys.FindU32Array(kPattern));
    if (per_layer->size() != h.layers) {
      return keys.Bad(kPattern,
                      fmt::format("has {} values for {} layers", per_layer->size(), h.layers));
    }
    for (uint32_t l = 0; l < h.layers; ++l) h.swa_layer[l] = (*per_layer)[l] != 0;
  }
  if (std::ranges::find(h.swa_layer, true) == h.swa_layer.end()) h.swa_window = 0;
  return {};
}

Status ReadGemma(const Keys& keys, Hyperparameters& h) {
  QEVICT_RETURN_IF_ERROR(ReadSlidingWindow(keys, h));
  QEVICT_ASSIGN_OR_RETURN(const auto softcap, keys.FindF32("final_logit_softcapping"));
  h.final_logit_softcap = softcap.value_or(0.0f);
  if (!std::isfinite(h.final_logit_softcap) || h.final_logit_softcap < 0.0f) {
    return keys.Bad("final_logit_softcapping", "is not a positive number");
  }
  h.activation = Activation::kGelu;
  h.embedding_scale = std::sqrt(static_cast<float>(h.embedding));
  // Only the 27B model, recognised by its depth, scales by the width per head, not by head_dim.
  if (h.layers == 62) {
    const uint32_t channels = h.embedding / h.heads;
    h.attention_scale = 1.0f / std::sqrt(static_cast<float>(channels));
  }
  return {};
}

}  // namespace

KvShape Hyperparameters::kv_shape() const {
  return {.layers = layers,
          .kv_heads = kv_heads,
          .group = group(),
          .head_dim = head_dim,
          .swa_window = swa_window,
          .swa_layer = swa_layer,
          .score_scale = attention_scale};
}

Result<Hyperparameters> ReadHyperparameters(const GgufFile& file) {
  QEVICT_ASSIGN_OR_RETURN(const FamilyTraits traits, FindFamily(file));
  const Keys keys(file, traits.architecture);
  QEVICT_RETURN_IF_ERROR(RefuseForeignFeatures(file, keys));

  Hyperparameters h;
  h.architecture = traits.architecture;
  h.family = traits.family;
  h.rope_layout = traits.rope_layout;
  QEVICT_ASSIGN_OR_RETURN(const auto name, file.FindString("general.name"));
  h.name = name.value_or("");
  QEVICT_RETURN_IF_ERROR(ReadSizes(file, keys, h));
  QEVICT_RETURN_IF_ERROR(ReadHeads(keys, h));
  QEVICT_RETURN_IF_ERROR(ReadRope(keys, h));
  h.attention_scale = 1.0f / std::sqrt(static_cast<float>(h.head_dim));
  h.swa_layer.assign(h.layers, false);
  if (h.family == Family::kGemma3) QEVICT_RETURN_IF_ERROR(ReadGemma(keys, h));
  return h;
}

}  // namespace qevict
