#include "eval/history_codec.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/check.h"

namespace qevict {
namespace {

constexpr CodecChoice Scaled(uint32_t key_bits, uint32_t value_bits) {
  return {CodecChoice::Kind::kScaled, key_bits, value_bits};
}
constexpr CodecChoice MinMax(uint32_t bits) { return {CodecChoice::Kind::kMinMax, bits, bits}; }
constexpr CodecChoice kQ8 = {CodecChoice::Kind::kQ8, 8, 8};

constexpr std::array kCodecs = {Scaled(2, 1), Scaled(2, 2), Scaled(3, 1), Scaled(3, 2),
                                Scaled(4, 1), Scaled(4, 2), Scaled(2, 4), Scaled(3, 4),
                                Scaled(4, 4), MinMax(2),    MinMax(4),    MinMax(8),
                                kQ8};

}  // namespace

std::string CodecChoice::name() const {
  if (kind == Kind::kMinMax) return "minmax" + std::to_string(key_bits);
  if (kind == Kind::kQ8) return std::string(KvTypeName(KvType::kQ8));
  return "k" + std::to_string(key_bits) + "v" + std::to_string(value_bits);
}

double CodecChoice::bits_per_element(uint32_t head_dim, uint32_t omega) const {
  if (kind == Kind::kMinMax) return MinMaxFormat{head_dim, omega, key_bits}.bits_per_element();
  if (kind == Kind::kQ8) return 8.0 * double(KvRowBytes(KvType::kQ8, head_dim)) / head_dim;
  const CodeFormat format{head_dim, key_bits, value_bits};
  return 8.0 * double(format.page_bytes()) / (2.0 * kCodePageTokens * head_dim);
}

std::span<const CodecChoice> AllCodecs() { return kCodecs; }

Result<CodecChoice> ParseCodec(std::string_view name) {
  std::string known;
  for (const CodecChoice& choice : kCodecs) {
    if (choice.name() == name) return choice;
    known += (known.empty() ? "" : ", ") + choice.name();
  }
  return Fail(ErrorCode::kInvalidArgument,
              "there is no codec '" + std::string(name) + "'; known are " + known);
}

Result<HistoryCodec> HistoryCodec::Create(CodecChoice choice, const WindowCodec& tables,
                                          const KvShape& shape, const Geometry& geometry) {
  HistoryCodec codec(choice, geometry, shape.head_dim);
  if (choice.kind != CodecChoice::Kind::kScaled) return codec;
  WindowCodec::Config config{.formats = {{shape.head_dim, choice.key_bits, choice.value_bits}},
                             .rope = tables.turns().pairs(),
                             .layers = shape.layers,
                             .kv_heads = shape.kv_heads,
                             .heads = {},
                             .sinks = geometry.sinks,
                             .omega = geometry.omega};
  for (uint32_t l = 0; l < shape.layers; ++l) {
    for (uint32_t h = 0; h < shape.kv_heads; ++h) {
      config.heads.push_back(tables.tables(LayerId(l), KvHeadId(h)));
    }
  }
  QEVICT_ASSIGN_OR_RETURN(codec.codec_, WindowCodec::Create(std::move(config)));
  return codec;
}

void HistoryCodec::Recode(const Place& place, Rows rows) const {
  if (choice_.kind == CodecChoice::Kind::kQ8) {
    using Block = std::array<uint8_t, kKeyBlockTokens * KvRowBytes(KvType::kQ8, kMaxHeadDim)>;
    alignas(32) Block keys, values;
    const KvRows block(KvType::kQ8, head_dim_, kKeyBlockTokens, keys.data(), values.data());
    for (size_t t = 0; t < geometry_.omega; ++t) {
      float *key = rows.keys + t * head_dim_, *value = rows.values + t * head_dim_;
      block.Write(0, key, value);
      block.Read(0, key, value);
    }
    return;
  }
  if (codec_ == nullptr) {
    const MinMaxFormat format{head_dim_, geometry_.omega, choice_.key_bits};
    std::vector<uint8_t> bytes(format.window_bytes());
    EncodeMinMaxWindow(format, {rows.keys, rows.values}, bytes.data());
    DecodeMinMaxWindow(format, bytes.data(), rows.keys, rows.values);
    return;
  }
  const HeadCodec& head = codec_->head(place.layer, place.kv_head, codec_->formats().front());
  std::array<float, kMaxCodedHeadDim> mu;
  codec_->MeanOf(place.layer, place.kv_head, place.window, mu.data());
  CodedRow row;
  for (size_t t = 0; t < geometry_.omega; ++t) {
    float* key = rows.keys + t * head_dim_;
    float* value = rows.values + t * head_dim_;
    head.EncodeKey(key, mu.data(), row);
    head.DecodeKey(row, mu.data(), key);
    head.EncodeValue(value, row);
    head.DecodeValue(row, value);
  }
}

Status HistoryCodec::RewriteHistory(SequenceKv& kv) {
  QEVICT_CHECK(!kv.tiered());
  if (codec_ != nullptr) QEVICT_RETURN_IF_ERROR(codec_->Grow(kv.size_tokens()));
  const uint32_t windows = geometry_.history_windows(kv.size_tokens());
  std::vector<float> keys(size_t{geometry_.omega} * head_dim_), values(keys.size());
  for (uint32_t l = 0; l < kv.shape().layers; ++l) {
    if (kv.shape().is_swa(l)) continue;
    for (uint32_t h = 0; h < kv.shape().kv_heads; ++h) {
      const KvRows rows = kv.Rows(LayerId(l), KvHeadId(h));
      for (uint32_t w = 0; w < windows; ++w) {
        const size_t first = geometry_.first_position(WindowId(w)).value;
        for (size_t t = 0; t < geometry_.omega; ++t) {
          rows.Read(uint32_t(first + t), &keys[t * head_dim_], &values[t * head_dim_]);
        }
        Recode({LayerId(l), KvHeadId(h), WindowId(w)}, {keys.data(), values.data()});
        for (size_t t = 0; t < geometry_.omega; ++t) {
          rows.Write(uint32_t(first + t), &keys[t * head_dim_], &values[t * head_dim_]);
        }
      }
    }
  }
  return {};
}

}  // namespace qevict
