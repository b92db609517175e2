#include "engine/table_recorder.h"

namespace qevict {

TableRecorder::TableRecorder(const KvShape& shape, CodeFormat format, const RopePairs& rope,
                             uint32_t sinks, uint32_t bias_tokens)
    : shape_(shape), blocks_(rope, Position(sinks), bias_tokens), rotation_(shape.head_dim) {
  for (uint32_t b = 0; b < shape.layers * shape.kv_heads; ++b) {
    builders_.emplace_back(format, &blocks_, &rotation_);
  }
}

void TableRecorder::BeginBatch(uint32_t first_position, uint32_t tokens) {
  turns_.clear();
  for (uint32_t t = 0; t < tokens; ++t) {
    turns_.emplace_back(blocks_.pairs(), Position(first_position + t));
  }
}

void TableRecorder::OnStore(LayerId layer, RowsView k, RowsView v, size_t thread, size_t threads) {
  for (uint32_t h = uint32_t(thread); h < shape_.kv_heads; h += uint32_t(threads)) {
    for (size_t t = 0; t < turns_.size(); ++t) {
      const size_t channel = size_t{h} * shape_.head_dim;
      Builder(layer, h).AddToken(k.base + t * k.stride + channel, v.base + t * v.stride + channel,
                                 turns_[t]);
    }
  }
}

void TableRecorder::OnAttend(LayerId layer, RowsView q, size_t thread, size_t threads) {
  for (uint32_t h = uint32_t(thread); h < shape_.kv_heads; h += uint32_t(threads)) {
    for (size_t t = 0; t < turns_.size(); ++t) {
      const float* group = q.base + t * q.stride + size_t{h} * shape_.group * shape_.head_dim;
      for (uint32_t g = 0; g < shape_.group; ++g) {
        Builder(layer, h).AddQuery(group + size_t{g} * shape_.head_dim);
      }
    }
  }
}

std::vector<HeadTables> TableRecorder::Build() const {
  std::vector<HeadTables> tables;
  for (const TableBuilder& builder : builders_) tables.push_back(builder.Build());
  return tables;
}

}  // namespace qevict
