// What one (layer, KV head) of a cache holds, decoded and laid out in f32, and attention over it by
// the definition: one softmax, in double. Shares no code with the kernels, nor with the way in
// which they turn queries into code space.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/sequence_kv.h"
#include "qevict/ids.h"

namespace qevict {

class ReferenceHead {
 public:
  // Room for heads of so many tokens, so that nothing below allocates. May throw std::bad_alloc.
  void Reserve(size_t tokens, size_t head_dim);
  // Tokens that Read would lay out.
  static size_t Tokens(const SequenceKv& kv, LayerId layer, KvHeadId kv_head,
                       uint32_t batch_tokens);

  // Replaces what it holds by the head's full cells and codes and, behind the cells, the current
  // batch's `batch_tokens` tokens, which have been stored and not yet committed. Nothing is
  // borrowed afterwards.
  void Read(const SequenceKv& kv, LayerId layer, KvHeadId kv_head, uint32_t batch_tokens);

  // What a query's softmax gives to the windows of a routed head; sinks have the rest.
  struct Masses {
    std::vector<double> full;   // by place, then the open window
    std::vector<double> codes;  // by attended code
  };
  // One query row of token `token` of the batch, which sees the batch up to itself. q: [head_dim],
  // RoPE done, not yet scaled; out: [head_dim]. `masses` may be null.
  void Attend(uint32_t token, const float* q, float* out, Masses* masses);

 private:
  void AppendCells(const SequenceKv& kv, LayerId layer, KvHeadId kv_head, uint32_t end);
  void AppendCodes(const SequenceKv& kv, LayerId layer, KvHeadId kv_head);

  Geometry geometry_;
  uint32_t head_dim_ = 0, swa_window_ = 0;  // 0: every cell is seen
  float score_scale_ = 1.0f;
  uint32_t first_cell_ = 0;  // that a query of the batch may see
  uint32_t batch_cell_ = 0;  // of the batch's first token
  uint32_t cells_ = 0;       // from first_cell_ on
  uint32_t coded_windows_ = 0;
  std::vector<float> keys_, values_;  // [cells_ + coded_windows_ * omega, head_dim]
  std::vector<float> mu_, decoded_;   // [head_dim]
  std::vector<double> weights_, sum_;
};

}  // namespace qevict
