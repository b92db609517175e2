// What a GGUF file says about the shape of its model, read and validated before any weight is
// loaded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/kv_shape.h"
#include "model/gguf_file.h"
#include "qevict/status.h"

namespace qevict {

enum class Family { kLlama, kQwen2, kQwen3, kGemma3 };
enum class RopeLayout { kInterleaved, kHalves };  // pairs (2i, 2i+1) or (i, i + rope_dims / 2)
enum class Activation { kSilu, kGelu };

struct RopeScaling {
  enum class Kind { kNone, kLinear, kYarn } kind = Kind::kNone;
  float factor = 1.0f;            // context extension; positions are divided by it
  float attention_factor = 1.0f;  // as the file says; YaRN's own correction comes on top of it
  uint32_t original_context = 0;  // context_train when the file does not say
  float yarn_beta_fast = 32.0f, yarn_beta_slow = 1.0f;
  float yarn_ext_factor = -1.0f;  // < 0: 1 for YaRN, 0 otherwise
};

struct Hyperparameters {
  std::string architecture;  // general.architecture
  std::string name;          // general.name, may be empty
  Family family = Family::kLlama;
  uint32_t layers = 0, embedding = 0, feed_forward = 0, vocab = 0, context_train = 0;
  uint32_t heads = 0, kv_heads = 0, head_dim = 0;  // the same in every layer
  uint32_t rope_dims = 0;  // channels of a head that RoPE turns, the first ones; even
  float rope_base = 10000.0f, rope_base_swa = 10000.0f;
  RopeScaling rope_scaling;
  RopeLayout rope_layout = RopeLayout::kInterleaved;
  float rms_epsilon = 1e-5f;
  float attention_scale = 0.0f;      // multiplies q . k
  float embedding_scale = 1.0f;      // gemma: sqrt(embedding)
  float final_logit_softcap = 0.0f;  // 0: none
  Activation activation = Activation::kSilu;
  // Tokens that a sliding-window layer sees, its own included; 0: no such layers.
  uint32_t swa_window = 0;
  std::vector<bool> swa_layer;  // [layers]

  uint32_t group() const { return heads / kv_heads; }
  bool is_swa(uint32_t layer) const { return swa_window != 0 && swa_layer[layer]; }
  KvShape kv_shape() const;
};

inline constexpr uint32_t kMaxSupportedHeadDim = 256;  // and every head_dim is a multiple of 16
inline constexpr uint32_t kMaxGroup = 128;

// Keys and defaults are libllama's. Errors: kUnsupported (names the architecture or feature),
// kBadFile (a missing key, a zero, or shapes that disagree).
[[nodiscard]] Result<Hyperparameters> ReadHyperparameters(const GgufFile& file);

}  // namespace qevict
