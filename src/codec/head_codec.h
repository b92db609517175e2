// The codec of one (layer, KV head): rows of f32 to small integer codes and back
// (docs/formats/code-page.md). With R of codec/rotation.h, level() of LevelsOf(bits) and mu the
// mean of the token's bias block (codec/mean_rotation.h):
//   key     x = R (a * (k - mu)),   k^ = mu + R^T (s level(code)) / a
//   value   x = R v,                v^ = R^T (s level(code))
// Each channel of x gets the nearest level at the row's own standard deviation. Then the scale
//   s = |x|^2 / sum_c x[c] level(code[c])
// makes <x, x^> = |x|^2: scores are not shrunk by the coding, as a least-squares scale would do.
// s is rounded to common * 2^((byte - 128) / steps), common = key_scale or value_scale, steps = 32
// or 16. A row whose s lies outside the bytes is coded again, to the nearest levels at the last
// scale inside. Any row decodes to finite numbers; one that holds a NaN or an infinity, or whose
// square leaves the range of f32, to meaningless ones.
#pragma once

#include <cstdint>
#include <vector>

#include "codec/code_page.h"
#include "codec/rotation.h"
#include "kernels/code_layout.h"
#include "qevict/status.h"

namespace qevict {

// What a model has of its own, measured once (codec/table_builder.h).
struct HeadTables {
  std::vector<float> weight;  // a, [head_dim]; equal within a RoPE pair, so right at every position
  std::vector<float> mean;    // m, [head_dim]: of the keys before RoPE
  float key_scale = 1.0f, value_scale = 1.0f;  // what scale byte 128 stands for

  // Error kInvalidArgument: a size that is not head_dim, a number that is not finite, or a weight
  // or scale outside 2^-40 .. 2^40.
  Status Validate(uint32_t head_dim) const;
};

// Immutable: any number of threads may use it at once. Rows are [head_dim].
class HeadCodec {
 public:
  // Preconditions: tables.Validate(format.head_dim) is ok, `rotation` is of that head_dim and
  // outlives the codec.
  HeadCodec(CodeFormat format, HeadTables tables, const Rotation* rotation);

  // key: after RoPE. mu: Turn() of the mean by the row of the token's bias block.
  void EncodeKey(const float* key, const float* mu, CodedRow& row) const;
  void EncodeValue(const float* value, CodedRow& row) const;
  void DecodeKey(const CodedRow& row, const float* mu, float* key) const;
  void DecodeValue(const CodedRow& row, float* value) const;

  // The query's side of a score, for AttendCodesArgs: out = R (q / a) in 127ths of its largest
  // channel. Returns q_scale, key_scale included:
  //   q . (k^ - mu) ~ q_scale * 2^((byte - 128) / 32) * sum_c out[c] level(code[c])
  // q carries the score's factor (1 / sqrt(head_dim)) already.
  float TransformQuery(const float* q, int8_t* out) const;
  // o, the kernel's sum in the values' code space, becomes the sum of values, in place.
  void FinishValues(float* o) const;

  // s before it is rounded, for key_scale and value_scale; 0 for a row of zeros.
  float KeyScale(const float* key, const float* mu) const;
  float ValueScale(const float* value) const;

  CodeFormat format() const { return format_; }
  const HeadTables& tables() const { return tables_; }

 private:
  void KeyToCodeSpace(const float* key, const float* mu, float* x) const;

  CodeFormat format_;
  HeadTables tables_;
  std::vector<float> inverse_weight_;
  const Rotation* rotation_;
};

}  // namespace qevict
