// Full-tier storage of one (layer, KV head), f16 or int8 with scales (kernels/kv_layout.h): tokens
// by slot, read and written as f32 and moved as the bytes that they are. Borrows; copies refer to
// the same storage.
#pragma once

#include <cstdint>

#include "kernels/kv_layout.h"

namespace qevict {

class KvRows {
 public:
  KvRows() = default;
  // keys, values: slots * KvRowBytes(type, head_dim) bytes each, 32-byte aligned. slots: whole
  // blocks.
  KvRows(KvType type, uint32_t head_dim, uint32_t slots, uint8_t* keys, uint8_t* values);

  uint32_t head_dim() const { return head_dim_; }
  KvView view() const;
  // Null for int8.
  F16* k() const { return k_; }
  F16* v() const { return v_; }
  // Null for f16.
  Q8Rows k8() const { return k8_; }
  Q8Rows v8() const { return v8_; }

  // key, value: [head_dim].
  void Read(uint32_t slot, float* key, float* value) const;
  void Write(uint32_t slot, const float* key, const float* value) const;
  // Slots [from, from + count) to [to, to + count), which may overlap.
  void Move(uint32_t from, uint32_t to, uint32_t count) const;
  // The first `tokens` slots of `from`, in whole blocks; both of the same type and head_dim, with
  // room for them.
  void CopyFrom(const KvRows& from, uint32_t tokens) const;

 private:
  void MoveToken(uint32_t from, uint32_t to) const;

  uint32_t head_dim_ = 0, slots_ = 0;
  F16 *k_ = nullptr, *v_ = nullptr;
  Q8Rows k8_, v8_;
};

}  // namespace qevict
