// Watches a model read a text and measures the codec's tables of every (layer, KV head).
#pragma once

#include <memory>
#include <vector>

#include "cache/cache_attention.h"
#include "cache/kv_shape.h"
#include "codec/table_builder.h"

namespace qevict {

class TableRecorder final : public AttentionObserver {
 public:
  // The codec's bias blocks have `bias_tokens` tokens each; the first begins behind the sinks.
  TableRecorder(const KvShape& shape, CodeFormat format, const RopePairs& rope, uint32_t sinks,
                uint32_t bias_tokens);

  // The position of the next batch's first token.
  void BeginBatch(uint32_t first_position, uint32_t tokens);
  void OnStore(LayerId layer, RowsView k, RowsView v, size_t thread, size_t threads) override;
  void OnAttend(LayerId layer, RowsView q, size_t thread, size_t threads) override;

  std::vector<HeadTables> Build() const;  // [layers, kv_heads]

 private:
  TableBuilder& Builder(LayerId layer, uint32_t kv_head) {
    return builders_[size_t{layer.value} * shape_.kv_heads + kv_head];
  }
  KvShape shape_;
  MeanRotation blocks_;
  Rotation rotation_;
  std::vector<TableBuilder> builders_;
  std::vector<PositionTurn> turns_;  // of the batch's tokens
};

}  // namespace qevict
