#include "cache/kv_rows.h"

#include <algorithm>

#include "kernels/q8.h"

namespace qevict {

KvRows::KvRows(KvType type, uint32_t head_dim, uint32_t slots, uint8_t* keys, uint8_t* values)
    : head_dim_(head_dim), slots_(slots) {
  if (type == KvType::kF16) {
    k_ = reinterpret_cast<F16*>(keys);
    v_ = reinterpret_cast<F16*>(values);
    return;
  }
  const size_t codes = size_t{slots} * head_dim;
  k8_ = {reinterpret_cast<int8_t*>(keys), reinterpret_cast<F16*>(keys + codes)};
  v8_ = {reinterpret_cast<int8_t*>(values), reinterpret_cast<F16*>(values + codes)};
}

KvView KvRows::view() const {
  return {.k = k_,
          .v = v_,
          .slots = slots_,
          .k8 = {k8_.codes, k8_.scales},
          .v8 = {v8_.codes, v8_.scales}};
}

void KvRows::Read(uint32_t slot, float* key, float* value) const {
  const KvView from = view();
  for (size_t c = 0; c < head_dim_; ++c) {
    key[c] = KeyAt(from, slot, c, head_dim_);
    value[c] = ValueAt(from, slot, c, head_dim_);
  }
}

void KvRows::Write(uint32_t slot, const float* key, const float* value) const {
  if (k_ == nullptr) {
    WriteQ8Key(key, slot, head_dim_, k8_);
    WriteQ8Value(value, slot, head_dim_, v8_);
    return;
  }
  for (size_t c = 0; c < head_dim_; ++c) {
    k_[KeyOffset(slot, c, head_dim_)] = F32ToF16(key[c]);
    v_[ValueOffset(slot, c, head_dim_)] = F32ToF16(value[c]);
  }
}

namespace {

// Elements of one token, 16 apart in a block of keys, side by side in values.
template <typename T>
void MoveKey(T* keys, uint32_t from, uint32_t to, size_t head_dim) {
  const T* key = keys + KeyOffset(from, 0, head_dim);
  T* key_to = keys + KeyOffset(to, 0, head_dim);
  for (size_t c = 0; c < head_dim; ++c) key_to[c * kKeyBlockTokens] = key[c * kKeyBlockTokens];
}
template <typename T>
void MoveValue(T* values, uint32_t from, uint32_t to, size_t head_dim) {
  std::copy_n(values + ValueOffset(from, 0, head_dim), head_dim,
              values + ValueOffset(to, 0, head_dim));
}

}  // namespace

void KvRows::MoveToken(uint32_t from, uint32_t to) const {
  if (k_ != nullptr) {
    MoveKey(k_, from, to, head_dim_);
    MoveValue(v_, from, to, head_dim_);
    return;
  }
  MoveKey(k8_.codes, from, to, head_dim_);
  MoveValue(v8_.codes, from, to, head_dim_);
  for (size_t g = 0; g < Q8Groups(head_dim_); ++g) {
    const size_t source = ScaleOffset(from, g, head_dim_), target = ScaleOffset(to, g, head_dim_);
    k8_.scales[target] = k8_.scales[source];
    v8_.scales[target] = v8_.scales[source];
  }
}

void KvRows::Move(uint32_t from, uint32_t to, uint32_t count) const {
  if (from == to) return;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t t = to < from ? i : count - 1 - i;
    MoveToken(from + t, to + t);
  }
}

void KvRows::CopyFrom(const KvRows& from, uint32_t tokens) const {
  const size_t slots = WholeKeyBlocks(tokens);
  const size_t elements = slots * head_dim_;
  if (k_ != nullptr) {
    std::copy_n(from.k_, elements, k_);
    std::copy_n(from.v_, elements, v_);
    return;
  }
  const size_t scales = slots * Q8Groups(head_dim_);
  std::copy_n(from.k8_.codes, elements, k8_.codes);
  std::copy_n(from.v8_.codes, elements, v8_.codes);
  std::copy_n(from.k8_.scales, scales, k8_.scales);
  std::copy_n(from.v8_.scales, scales, v8_.scales);
}

}  // namespace qevict
