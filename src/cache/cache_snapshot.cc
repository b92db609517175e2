#include "cache/cache_snapshot.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace qevict {
namespace {

std::vector<WindowSnapshot> Copy(std::span<const WindowRecord> records) {
  std::vector<WindowSnapshot> copies;
  copies.reserve(records.size());
  for (const WindowRecord& record : records) copies.push_back({record.window.value, record.score});
  return copies;
}

// Collects what is wrong with one head.
class HeadValidator {
 public:
  HeadValidator(const CacheSnapshot& cache, const HeadSnapshot& head,
                std::vector<std::string>& violations)
      : cache_(cache), head_(head), violations_(violations), places_of_(cache.complete_windows) {}

  void Run() {
    CountFull();
    CountCodes();
    CheckCapacities();
    for (const auto* records : {&head_.full, &head_.attended, &head_.retained}) {
      for (const WindowSnapshot& record : *records) {
        if (!std::isfinite(record.score) || record.score < 0.0f)
          Violated("window " + std::to_string(record.window) + " has the score " +
                   std::to_string(record.score));
      }
    }
  }

 private:
  void Violated(const std::string& what) {
    violations_.push_back("layer " + std::to_string(head_.layer) + ", KV head " +
                          std::to_string(head_.kv_head) + ": " + what);
  }
  void Expect(uint64_t actual, uint64_t most, const char* what) {
    if (actual > most)
      Violated(std::to_string(actual) + " " + what + ", with room for " + std::to_string(most));
  }

  void CountFull() {
    for (const WindowSnapshot& record : head_.full) {
      if (record.window >= cache_.complete_windows) {
        Violated("window " + std::to_string(record.window) + " is full and not yet complete");
      } else if (++places_of_[record.window] > 1) {
        Violated("window " + std::to_string(record.window) + " has two places");
      }
    }
    for (uint32_t w = cache_.history_windows; w < cache_.complete_windows; ++w) {
      if (places_of_[w] == 0)
        Violated("window " + std::to_string(w) + " of the local zone is not full");
    }
  }

  void CountCodes() {
    std::vector<uint32_t> codes_of(cache_.history_windows);
    const auto count = [&](const WindowSnapshot& record) {
      if (record.window >= cache_.history_windows) {
        Violated("window " + std::to_string(record.window) + " has a code outside of the history");
        return false;
      }
      if (++codes_of[record.window] > 1)
        Violated("window " + std::to_string(record.window) + " has two codes");
      return true;
    };
    for (const WindowSnapshot& record : head_.attended) {
      if (count(record) && places_of_[record.window] != 0)
        Violated("window " + std::to_string(record.window) + " is attended in both tiers");
    }
    for (const WindowSnapshot& record : head_.retained) {
      if (count(record) && places_of_[record.window] == 0)
        Violated("window " + std::to_string(record.window) + " has a retained code and no place");
    }
  }

  void CheckCapacities() {
    const size_t full = size_t(std::ranges::count_if(
        head_.full, [&](const WindowSnapshot& r) { return r.window < cache_.history_windows; }));
    const size_t codes = head_.attended.size() + head_.retained.size();
    Expect(full, cache_.full_capacity, "full windows of the history");
    Expect(head_.full.size(), cache_.places, "places");
    Expect(codes, cache_.quantized_capacity + cache_.retained_capacity, "codes");
    if (cache_.promotion == Promotion::kExpand) {
      Expect(head_.attended.size(), cache_.quantized_capacity, "attended codes");
      Expect(head_.retained.size(), cache_.retained_capacity, "retained codes");
    }
    const uint32_t pages = CodePages(uint32_t(codes), cache_.omega);
    if (head_.pages != pages)
      Violated(std::to_string(codes) + " codes take " + std::to_string(pages) +
               " pages, and it has " + std::to_string(head_.pages));
  }

  const CacheSnapshot& cache_;
  const HeadSnapshot& head_;
  std::vector<std::string>& violations_;
  std::vector<uint32_t> places_of_;  // by window
};

}  // namespace

CacheSnapshot Snapshot(const SequenceKv& kv) {
  const Geometry& geometry = kv.geometry();
  const CachePlan& plan = kv.plan();
  CacheSnapshot snapshot{.size_tokens = kv.size_tokens(),
                         .complete_windows = geometry.complete_windows(kv.size_tokens()),
                         .history_windows = geometry.history_windows(kv.size_tokens()),
                         .omega = geometry.omega,
                         .full_capacity = plan.capacity.full,
                         .quantized_capacity = plan.capacity.quantized,
                         .retained_capacity = plan.retained_windows,
                         .places = plan.full_slots / geometry.omega,
                         .promotion = kv.promotion(),
                         .used_bytes = kv.budget().used_bytes(),
                         .limit_bytes = kv.budget().limit_bytes(),
                         .code_bytes = kv.code_bytes(),
                         .heads = {}};
  for (uint32_t l = 0; l < kv.shape().layers; ++l) {
    if (!kv.routed(LayerId(l))) continue;
    for (uint32_t h = 0; h < kv.shape().kv_heads; ++h) {
      const HeadWindows& windows = kv.windows(LayerId(l), KvHeadId(h));
      snapshot.heads.push_back({.layer = l,
                                .kv_head = h,
                                .full = Copy(windows.full()),
                                .attended = Copy(windows.attended()),
                                .retained = Copy(windows.retained()),
                                .pages = windows.page_count(),
                                .page_bytes = windows.format().page_bytes()});
    }
  }
  return snapshot;
}

std::vector<std::string> ValidateInvariants(const CacheSnapshot& snapshot) {
  std::vector<std::string> violations;
  uint64_t pages = 0, page_bytes = 0;
  for (const HeadSnapshot& head : snapshot.heads) {
    HeadValidator(snapshot, head, violations).Run();
    pages += head.pages;
    page_bytes += head.pages * head.page_bytes;
  }
  if (snapshot.code_bytes != page_bytes) {
    violations.push_back("the heads have " + std::to_string(pages) + " pages of " +
                         std::to_string(page_bytes) + " bytes, and " +
                         std::to_string(snapshot.code_bytes) + " bytes of pages are in use");
  }
  if (snapshot.used_bytes > snapshot.limit_bytes) {
    violations.push_back(std::to_string(snapshot.used_bytes) + " bytes are used of a budget of " +
                         std::to_string(snapshot.limit_bytes));
  }
  return violations;
}

}  // namespace qevict
