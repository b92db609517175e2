// The codec of a whole model: the tables of every (layer, KV head), the rotation they share, and
// the mean turns of the positions that windows stand at. Sequences, and heads of one sequence, may
// use different formats of the same codec.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "codec/head_codec.h"
#include "codec/mean_rotation.h"
#include "qevict/ids.h"
#include "qevict/status.h"

namespace qevict {

class WindowCodec {
 public:
  struct Config {
    std::vector<CodeFormat> formats;  // those that heads may use, of one head_dim; at least one
    RopePairs rope;
    uint32_t layers = 0, kv_heads = 0;
    std::vector<HeadTables> heads;  // [layers, kv_heads]
    uint32_t sinks = 0, omega = 0;  // window w starts at position sinks + w * omega
  };
  // Error kInvalidArgument: tables that do not fit the model.
  static Result<std::unique_ptr<WindowCodec>> Create(Config config);

  std::span<const CodeFormat> formats() const { return config_.formats; }
  // Precondition: one of the formats.
  const HeadCodec& head(LayerId layer, KvHeadId head, const CodeFormat& format) const;
  const HeadTables& tables(LayerId layer, KvHeadId head) const {
    return heads_[HeadIndex(layer, head)].tables();
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
  size_t HeadIndex(LayerId layer, KvHeadId head) const {
    return size_t{layer.value} * config_.kv_heads + head.value;
  }
  Config config_;
  Rotation rotation_;
  MeanRotation turns_;
  std::vector<HeadCodec> heads_;  // [formats, layers, kv_heads]; their tables are copies
  uint32_t windows_per_block_;
};

}  // namespace qevict
