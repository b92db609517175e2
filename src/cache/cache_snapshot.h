// The ledger of a sequence as plain values, and what must hold of it between batches. For tests and
// diagnostics; nothing here is fast.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/sequence_kv.h"

namespace qevict {

struct WindowSnapshot {
  uint32_t window = 0;
  float score = 0.0f;
  friend bool operator==(const WindowSnapshot&, const WindowSnapshot&) = default;
};

// One KV head of a routed layer.
struct HeadSnapshot {
  uint32_t layer = 0, kv_head = 0;
  std::vector<WindowSnapshot> full;      // by place: windows of the history and of the local zone
  std::vector<WindowSnapshot> attended;  // by code
  std::vector<WindowSnapshot> retained;  // codes of windows that are full again
  uint32_t pages = 0;
  uint64_t page_bytes = 0;  // of one
  friend bool operator==(const HeadSnapshot&, const HeadSnapshot&) = default;
};

struct CacheSnapshot {
  uint32_t size_tokens = 0;
  uint32_t complete_windows = 0, history_windows = 0;  // of so many tokens
  uint32_t omega = 0;
  // What a head has room for. With kPin a window that was promoted stays among the attended codes.
  uint32_t full_capacity = 0, quantized_capacity = 0, retained_capacity = 0;  // history windows
  uint32_t places = 0;  // full windows, those of the local zone included
  Promotion promotion = Promotion::kExpand;
  uint64_t used_bytes = 0, limit_bytes = 0;  // of the budget
  uint64_t code_bytes = 0;                   // of pages in use
  std::vector<HeadSnapshot> heads;           // [routed layers, kv_heads]
  friend bool operator==(const CacheSnapshot&, const CacheSnapshot&) = default;
};

// Precondition: no batch is under way.
CacheSnapshot Snapshot(const SequenceKv& kv);

// One sentence for each thing that does not hold; empty when the ledger is sound.
std::vector<std::string> ValidateInvariants(const CacheSnapshot& snapshot);

}  // namespace qevict
