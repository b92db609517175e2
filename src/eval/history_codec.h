// Codecs of a cache's history by name, to compare what each does to a model's predictions:
//   k3v2        our own (codec/head_codec.h): bits of keys 2 .. 4, of values 1, 2, 4
//   minmax2     the min/max code of published window caches (codec/minmax.h): 2, 4 or 8 bits
//   q8          int8 with a scale per 32 channels, as a full tier may be kept (kernels/q8.h)
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cache/sequence_kv.h"
#include "codec/minmax.h"
#include "codec/window_codec.h"
#include "core/geometry.h"
#include "qevict/status.h"

namespace qevict {

struct CodecChoice {
  enum class Kind { kScaled, kMinMax, kQ8 };
  Kind kind = Kind::kScaled;
  uint32_t key_bits = 3, value_bits = 2;

  std::string name() const;
  // Mean of keys and values, with everything that is stored per sequence: scales, zero points,
  // padding of rows.
  double bits_per_element(uint32_t head_dim, uint32_t omega) const;
  friend bool operator==(const CodecChoice&, const CodecChoice&) = default;
};

// Every codec, fewest bits first within each kind.
std::span<const CodecChoice> AllCodecs();
// Error kInvalidArgument, listing the names.
Result<CodecChoice> ParseCodec(std::string_view name);

class HistoryCodec {
 public:
  // `tables` is a codec of a model of this shape at any bits; what is needed of it is copied.
  // `geometry` says what of a sequence is history. Error kInvalidArgument.
  static Result<HistoryCodec> Create(CodecChoice choice, const WindowCodec& tables,
                                     const KvShape& shape, const Geometry& geometry);

  // Replaces the history of a sequence without tiers, in every layer that routing would review, by
  // what decoding its codes gives, rounded to f16. Error kOutOfMemory, and then nothing has
  // changed.
  Status RewriteHistory(SequenceKv& kv);

 private:
  HistoryCodec(CodecChoice choice, const Geometry& geometry, uint32_t head_dim)
      : choice_(choice), geometry_(geometry), head_dim_(head_dim) {}
  // [omega, head_dim] each, in place.
  struct Rows {
    float* keys;
    float* values;
  };
  struct Place {
    LayerId layer;
    KvHeadId kv_head;
    WindowId window;
  };
  void Recode(const Place& place, Rows rows) const;

  CodecChoice choice_;
  Geometry geometry_;
  uint32_t head_dim_;
  std::unique_ptr<WindowCodec> codec_;  // null: min/max or q8
};

}  // namespace qevict
