#include "cache/cache_attention.h"

#include <algorithm>

namespace qevict {
namespace {

// Tokens per Store item: whole K blocks, enough of them to be worth a function call.
constexpr uint32_t kStoreTokens = 64;

}  // namespace

CacheAttention::CacheAttention(const KvShape& shape, Isa isa)
    : shape_(shape), store_kv_(SelectVariant(StoreKvVariants(), isa)) {}

void CacheAttention::Store(LayerId layer, RowsView k, RowsView v, size_t thread, size_t threads) {
  if (observer_ != nullptr) observer_->OnStore(layer, k, v, thread, threads);
  size_t item = 0;
  for (const BatchSlice& slice : slices_) {
    for (uint32_t begin = 0; begin < slice.tokens; begin += kStoreTokens) {
      const uint32_t end = std::min(begin + kStoreTokens, slice.tokens);
      for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
        if (item++ % threads != thread) continue;
        const uint32_t cell = slice.kv->cells(layer, KvHeadId(h)) + begin;
        for (const SlotRange& range : slice.kv->Slots(layer, cell, cell + end - begin)) {
          if (range.begin == range.end) continue;
          const size_t row = slice.first_row + begin + (range.first - cell);
          const KvRows rows = slice.kv->Rows(layer, KvHeadId(h));
          store_kv_({.tokens = range.end - range.begin,
                     .head_dim = shape_.head_dim,
                     .k = k.base + row * k.stride + size_t{h} * shape_.head_dim,
                     .v = v.base + row * v.stride + size_t{h} * shape_.head_dim,
                     .k_stride = k.stride,
                     .v_stride = v.stride,
                     .k_out = rows.k(),
                     .v_out = rows.v(),
                     .k8_out = rows.k8(),
                     .v8_out = rows.v8(),
                     .slot = range.begin});
        }
      }
    }
  }
}

}  // namespace qevict
