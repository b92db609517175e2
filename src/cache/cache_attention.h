// Attention over the caches of a batch's sequences, as an engine runs it: bound to the batch, then
// called by the model's graph.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/attention.h"
#include "cache/sequence_kv.h"
#include "core/isa.h"
#include "kernels/store_kv/store_kv.h"
#include "qevict/status.h"

namespace qevict {

// Tokens of one sequence inside a batch: rows [first_row, first_row + tokens) at positions
// kv->size_tokens() onwards.
struct BatchSlice {
  SequenceKv* kv = nullptr;
  uint32_t first_row = 0, tokens = 0;
  // Those from here on vote on windows, where SequenceKv::tracks_mass.
  uint32_t voters_from = 0;

  bool votes(LayerId layer) const { return voters_from < tokens && kv->tracks_mass(layer); }
};

// Sees every row that passes through. Called like the Attention it watches, by the same threads.
class AttentionObserver {
 public:
  virtual ~AttentionObserver() = default;
  virtual void OnStore(LayerId layer, RowsView k, RowsView v, size_t thread, size_t threads) = 0;
  virtual void OnAttend(LayerId layer, RowsView q, size_t thread, size_t threads) = 0;
};

// Layers [first, last).
struct LayerRange {
  uint32_t first = 0, last = 0;
};

class CacheAttention : public Attention {
 public:
  // Prepares for one run of the graph over `slices`, on whose caches BeginBatch was called, through
  // `layers` alone. Error kOutOfMemory.
  virtual Status Bind(std::span<const BatchSlice> slices, LayerRange layers) = 0;
  // Through all layers.
  Status Bind(std::span<const BatchSlice> slices) { return Bind(slices, {0, shape_.layers}); }
  // Null: nobody. Not while a graph runs.
  void Watch(AttentionObserver* observer) { observer_ = observer; }

  void Store(LayerId layer, RowsView k, RowsView v, size_t thread, size_t threads) final;

 protected:
  // `isa`: of the kernel that stores.
  CacheAttention(const KvShape& shape, Isa isa);

  KvShape shape_;
  std::vector<BatchSlice> slices_;  // of the batch that it is bound to
  AttentionObserver* observer_ = nullptr;

 private:
  StoreKvFn store_kv_;
};

}  // namespace qevict
