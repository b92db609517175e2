#include "cache/reference_head.h"

#include <algorithm>
#include <cmath>

#include "codec/code_page.h"
#include "kernels/q8.h"

namespace qevict {

void ReferenceHead::Reserve(size_t tokens, size_t head_dim) {
  keys_.reserve(tokens * head_dim);
  values_.reserve(tokens * head_dim);
  weights_.reserve(tokens);
  sum_.reserve(head_dim);
  mu_.reserve(head_dim);
  decoded_.reserve(head_dim);
}

size_t ReferenceHead::Tokens(const SequenceKv& kv, LayerId layer, KvHeadId kv_head,
                             uint32_t batch_tokens) {
  const uint32_t cell = kv.cells(layer, kv_head);
  const size_t codes = kv.routed(layer) ? kv.windows(layer, kv_head).attended().size() : 0;
  return size_t{cell} + batch_tokens - kv.VisibleFrom(layer, cell) + codes * kv.geometry().omega;
}

void ReferenceHead::Read(const SequenceKv& kv, LayerId layer, KvHeadId kv_head,
                         uint32_t batch_tokens) {
  geometry_ = kv.geometry();
  head_dim_ = kv.shape().head_dim;
  swa_window_ = kv.shape().is_swa(layer.value) ? kv.shape().swa_window : 0;
  score_scale_ = kv.shape().score_scale;
  batch_cell_ = kv.cells(layer, kv_head);
  first_cell_ = kv.VisibleFrom(layer, batch_cell_);
  coded_windows_ = 0;
  keys_.clear();
  values_.clear();
  AppendCells(kv, layer, kv_head, batch_cell_ + batch_tokens);
  if (kv.routed(layer)) AppendCodes(kv, layer, kv_head);
}

void ReferenceHead::AppendCells(const SequenceKv& kv, LayerId layer, KvHeadId kv_head,
                                uint32_t end) {
  cells_ = end - first_cell_;
  const KvView view = kv.View(layer, kv_head);
  for (const SlotRange& range : kv.Slots(layer, first_cell_, end)) {
    for (uint32_t slot = range.begin; slot < range.end; ++slot) {
      for (uint32_t c = 0; c < head_dim_; ++c) {
        keys_.push_back(KeyAt(view, slot, c, head_dim_));
        values_.push_back(ValueAt(view, slot, c, head_dim_));
      }
    }
  }
}

void ReferenceHead::AppendCodes(const SequenceKv& kv, LayerId layer, KvHeadId kv_head) {
  const HeadWindows& windows = kv.windows(layer, kv_head);
  const CodeFormat& format = windows.format();
  coded_windows_ = uint32_t(windows.attended().size());
  if (coded_windows_ == 0) return;
  const HeadCodec& head_codec = windows.head_codec();
  mu_.resize(head_dim_);
  decoded_.resize(head_dim_);
  for (uint32_t code = 0; code < coded_windows_; ++code) {
    windows.codec().MeanOf(layer, kv_head, windows.attended()[code].window, mu_.data());
    for (uint32_t t = 0; t < geometry_.omega; ++t) {
      const size_t slot = size_t{code} * geometry_.omega + t;
      const CodedToken token =
          GetToken(format, windows.pages()[slot / kCodePageTokens], slot % kCodePageTokens);
      head_codec.DecodeKey(token.key, mu_.data(), decoded_.data());
      keys_.insert(keys_.end(), decoded_.begin(), decoded_.end());
      head_codec.DecodeValue(token.value, decoded_.data());
      values_.insert(values_.end(), decoded_.begin(), decoded_.end());
    }
  }
}

void ReferenceHead::Attend(uint32_t token, const float* q, float* out, Masses* masses) {
  const uint32_t cell = batch_cell_ + token;
  const uint32_t visible_from = swa_window_ == 0 || cell < swa_window_ ? 0 : cell + 1 - swa_window_;
  const size_t begin = std::max(visible_from, first_cell_) - first_cell_;
  const size_t end = cell + 1 - first_cell_, all = keys_.size() / head_dim_;
  weights_.assign(all, 0.0);  // what the query does not see keeps 0
  double largest = -INFINITY;
  const auto for_each_token = [&](const auto& visit) {
    for (size_t t = begin; t < end; ++t) visit(t);
    for (size_t t = cells_; t < all; ++t) visit(t);
  };
  for_each_token([&](size_t t) {
    for (size_t c = 0; c < head_dim_; ++c) {
      weights_[t] += double(q[c]) * double(keys_[t * head_dim_ + c]);
    }
    weights_[t] *= double(score_scale_);
    largest = std::max(largest, weights_[t]);
  });
  double sum = 0.0;
  for_each_token([&](size_t t) { sum += weights_[t] = std::exp(weights_[t] - largest); });
  sum_.assign(head_dim_, 0.0);
  for_each_token([&](size_t t) {
    weights_[t] /= sum;
    for (size_t c = 0; c < head_dim_; ++c)
      sum_[c] += weights_[t] * double(values_[t * head_dim_ + c]);
  });
  std::ranges::transform(sum_, out, [](double x) { return float(x); });

  if (masses == nullptr) return;
  const size_t omega = geometry_.omega;
  const size_t windowed = cells_ - std::min(cells_, geometry_.sinks);
  masses->full.assign(windowed / omega + 1, 0.0);
  masses->codes.assign(coded_windows_, 0.0);
  for (size_t t = geometry_.sinks; t < cells_; ++t) {
    masses->full[(t - geometry_.sinks) / omega] += weights_[t];
  }
  for (size_t t = cells_; t < all; ++t) masses->codes[(t - cells_) / omega] += weights_[t];
}

}  // namespace qevict
