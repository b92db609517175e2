// The codec of a whole model: the tables of every (layer, KV head), the rotation they share, and
// the mean turns of the positions that windows stand at.
#pragma once

#include <memory>
#include <vector>

#include "codec/head_codec.h"
#include "codec/mean_rotation.h"
#include "qevict/ids.h"
#include "qevict/status.h"

namespace qevict {

class WindowCodec {
 public:
  struct Config {
    CodeFormat format;
    RopePairs rope;
    uint32_t layers = 0, kv_heads = 0;
    std::vector<HeadTables> heads;  // [layers, kv_heads]
    uint32_t sinks = 0, omega = 0;  // window w starts at position sinks + w * omega
  };
  // Error kInvalidArgument: tables that do not fit the model.
  static Result<std::unique_ptr<WindowCodec>> Create(Config config);

  const CodeFormat& format() const { return config_.format; }
  const HeadCodec& head(LayerId layer, KvHeadId head) const {
    return heads_[size_t{layer.value} * config_.kv_heads + head.value];
  }
  const MeanRotation& turns() const { return turns_; }
  size_t BiasBlockOf(WindowId window) const { return window.value / windows_per_block_; }
  // mu[head_dim] of the window's keys.
  void MeanOf(LayerId layer, KvHeadId head, WindowId window, float* mu) const;
  // Bytes of what all sequences share.
  size_t shared_bytes() const { return turns_.bytes(); }

  // Makes every position below `tokens` codable. Not while another thread uses the codec. Error
  // kOutOfMemory, and then nothing has changed.
  Status Grow(uint32_t tokens);

 private:
  explicit WindowCodec(Config config);
  Config config_;
  Rotation rotation_;
  MeanRotation turns_;
  std::vector<HeadCodec> heads_;
  uint32_t windows_per_block_;
};

}  // namespace qevict
