#include "cache/cache_plan.h"

#include <algorithm>
#include <string>

#include "core/aligned_buffer.h"

namespace qevict {
namespace {

constexpr uint64_t RoundUp(uint64_t n, uint64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

class Planner {
 public:
  Planner(const KvShape& shape, const PlanRequest& request)
      : shape_(shape),
        request_(request),
        format_{shape.head_dim, request.key_bits, request.value_bits},
        heads_(uint64_t{RoutedLayers(shape)} * shape.kv_heads),
        history_windows_(request.geometry.history_windows(request.capacity_tokens)) {}

  uint32_t history_windows() const { return history_windows_; }

  CachePlan Plan(TierCapacity capacity, uint32_t retained_windows, size_t raises = 0) const {
    const Geometry& g = request_.geometry;
    CachePlan plan{.limit_bytes = request_.limit_bytes,
                   .kv_type = request_.kv_type,
                   .capacity = capacity,
                   .retained_windows = retained_windows,
                   .formats = std::vector<CodeFormat>(heads_, format_)};
    for (const CodeRaise& raise : request_.raises.first(raises))
      Raise(plan.formats[raise.head], raise.side);
    // Beside the history's share: sinks, the local zone, and the window that has just become
    // complete and pushes another one out.
    const uint64_t local = RoundUp(g.local, g.omega) + g.omega;
    const uint64_t tokens = g.sinks + local + uint64_t{capacity.full} * g.omega;
    plan.full_slots =
        uint32_t(WholeKeyBlocks(std::min<uint64_t>(tokens, request_.capacity_tokens)));
    const uint64_t token_bytes = uint64_t{2} * KvRowBytes(request_.kv_type, shape_.head_dim);
    const uint64_t ring_heads = uint64_t{shape_.layers - RoutedLayers(shape_)} * shape_.kv_heads;
    const uint64_t ring_slots =
        ring_heads == 0 ? 0
                        : RingSlots(shape_, request_.capacity_tokens, request_.max_batch_tokens);
    plan.full_bytes = AlignedBuffer::RoundedBytes(
        (heads_ * plan.full_slots + ring_heads * ring_slots) * token_bytes);
    if (request_.split == TierSplit::kFullOnly) return plan;

    const uint32_t pages = CodePages(plan.code_windows(), g.omega);
    plan.ledger_bytes = AlignedBuffer::RoundedBytes(
        heads_ * LedgerHeadBytes(plan.full_slots / g.omega, plan.code_windows(), pages) +
        ScoringBytes(request_.scoring, g.complete_windows(request_.capacity_tokens), heads_));
    for (const FormatCount& count : CountFormats(plan.formats))
      plan.code_bytes += CodePoolBytes(count.format, uint64_t{count.heads} * pages);
    return plan;
  }

  // `windows` codes per head, of as many bits as fit. By trying: a page less in one pool and one
  // more in another may save bytes that rounding had cost.
  CachePlan PlanRaised(uint32_t windows) const {
    size_t raises = request_.raises.size();
    while (raises > 0 &&
           Plan({.quantized = windows}, 0, raises).total_bytes() > request_.limit_bytes) {
      --raises;
    }
    return Plan({.quantized = windows}, 0, raises);
  }

  // The most windows in [0, most] for which make(windows) stays within the limit, or -1.
  template <typename Make>
  int64_t Largest(uint32_t most, const Make& make) const {
    int64_t low = -1, high = most;
    while (low < high) {
      const int64_t middle = high - (high - low) / 2;
      if (make(uint32_t(middle)).total_bytes() <= request_.limit_bytes) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

 private:
  const KvShape& shape_;
  const PlanRequest& request_;
  CodeFormat format_;
  uint64_t heads_;
  uint32_t history_windows_;
};

// What a user whose budget is too small can do.
std::string Advice(const KvShape& shape, const PlanRequest& request, uint64_t smallest) {
  if (request.split == TierSplit::kCodeAll) return ", because --policy quant evicts nothing";
  const uint64_t everything = FullCacheBytes(shape, request.capacity_tokens, request.kv_type);
  if (smallest >= everything) {
    return ", no less than every token in " + std::string(KvTypeName(request.kv_type)) + " (" +
           std::to_string(everything) + "): so short a context needs no --kv-budget; drop it";
  }
  uint64_t rings = 0;
  for (uint32_t l = 0; l < shape.layers; ++l) {
    if (shape.is_swa(l))
      rings += LayerBytes(shape, LayerId(l), request.capacity_tokens, request.max_batch_tokens,
                          request.kv_type);
  }
  if (2 * rings > smallest) {
    return ", of which sliding-window layers, which are never coded, take " +
           std::to_string(rings) + "; lower --chunk or raise the budget";
  }
  return "; or lower --window, --local or --sinks";
}

}  // namespace

double CachePlan::code_bits() const {
  if (code_windows() == 0 || formats.empty()) return 0.0;
  double bits = 0.0;
  for (const CodeFormat& format : formats)
    bits += 8.0 * double(format.page_bytes()) / (2.0 * kCodePageTokens * format.head_dim);
  return bits / double(formats.size());
}

std::vector<FormatCount> CountFormats(std::span<const CodeFormat> formats) {
  std::vector<FormatCount> counts;
  for (const CodeFormat& format : formats) {
    const auto found = std::ranges::find(counts, format, &FormatCount::format);
    if (found == counts.end()) {
      counts.push_back({format, 1});
    } else {
      ++found->heads;
    }
  }
  return counts;
}

uint64_t CodePoolBytes(const CodeFormat& format, uint64_t pages) {
  return pages / kSlabPages * AlignedBuffer::RoundedBytes(kSlabPages * format.page_bytes()) +
         AlignedBuffer::RoundedBytes(pages % kSlabPages * format.page_bytes());
}

uint32_t RoutedLayers(const KvShape& shape) {
  uint32_t layers = 0;
  for (uint32_t l = 0; l < shape.layers; ++l) layers += !shape.is_swa(l);
  return layers;
}

uint32_t RingSlots(const KvShape& shape, uint32_t capacity_tokens, uint32_t max_batch_tokens) {
  const uint64_t tokens = uint64_t{shape.swa_window} + max_batch_tokens;
  return uint32_t(WholeKeyBlocks(std::min<uint64_t>(tokens, capacity_tokens)));
}

uint64_t LayerBytes(const KvShape& shape, LayerId layer, uint32_t capacity_tokens,
                    uint32_t max_batch_tokens, KvType type) {
  const uint64_t slots = shape.is_swa(layer.value)
                             ? RingSlots(shape, capacity_tokens, max_batch_tokens)
                             : WholeKeyBlocks(capacity_tokens);
  return slots * shape.layer_token_bytes(type);
}

uint64_t FullCacheBytes(const KvShape& shape, uint32_t capacity_tokens, KvType type) {
  return uint64_t{shape.layers} * shape.layer_token_bytes(type) * capacity_tokens;
}

uint64_t CodeAllBytes(const KvShape& shape, const PlanRequest& request) {
  const Planner planner(shape, request);
  const uint32_t history = planner.history_windows();
  // A short sequence may take less in f16 than in pages of codes.
  return std::min(planner.Plan({.quantized = history}, 0).total_bytes(),
                  planner.Plan({.full = history}, 0).total_bytes());
}

Result<CachePlan> PlanCache(const KvShape& shape, const PlanRequest& request) {
  QEVICT_RETURN_IF_ERROR(request.geometry.Validate());
  const Planner planner(shape, request);
  const uint32_t history = planner.history_windows();

  // With room for everything in full precision nothing is gained by a code.
  const CachePlan everything = planner.Plan({.full = history}, 0);
  if (request.split == TierSplit::kFullOnly || everything.total_bytes() <= request.limit_bytes) {
    if (everything.total_bytes() <= request.limit_bytes) return everything;
    return Fail(ErrorCode::kBudgetExceeded,
                "the full cache of " + std::to_string(request.capacity_tokens) + " tokens takes " +
                    std::to_string(everything.total_bytes()) +
                    " bytes, more than --kv-budget allows (" + std::to_string(request.limit_bytes) +
                    "); choose another --policy");
  }

  const auto codes = [&](uint32_t windows) { return planner.Plan({.quantized = windows}, 0); };
  const auto one_tier = [&](uint32_t windows) {
    return request.split == TierSplit::kFullHistory ? planner.Plan({.full = windows}, 0)
                                                    : codes(windows);
  };
  const uint32_t least = request.split == TierSplit::kCodeAll ? history : std::min(history, 1u);
  const int64_t most = planner.Largest(history, one_tier);
  if (most < int64_t{least}) {
    const uint64_t smallest = std::min(one_tier(least).total_bytes(), everything.total_bytes());
    return Fail(ErrorCode::kBudgetExceeded,
                "--kv-budget allows " + std::to_string(request.limit_bytes) +
                    " bytes; the smallest that works for " +
                    std::to_string(request.capacity_tokens) + " tokens is " +
                    std::to_string(smallest) + " bytes" + Advice(shape, request, smallest));
  }
  if (request.split == TierSplit::kCodeHistory && uint32_t(most) == history)
    return planner.PlanRaised(history);
  if (request.split != TierSplit::kFullAndCodes) return one_tier(uint32_t(most));

  // Full windows take their share of what the history may use; each keeps a code as well, once it
  // has been quantized.
  const uint64_t floor_bytes = codes(0).total_bytes();
  const uint64_t share_bytes =
      floor_bytes + uint64_t(double(request.limit_bytes - floor_bytes) * request.full_share);
  const auto full_only = [&](uint32_t windows) { return planner.Plan({.full = windows}, windows); };
  PlanRequest share_request = request;
  share_request.limit_bytes = share_bytes;
  const int64_t full =
      std::max<int64_t>(0, Planner(shape, share_request).Largest(history, full_only));
  const auto both = [&](uint32_t windows) {
    return planner.Plan({.full = uint32_t(full), .quantized = windows}, uint32_t(full));
  };
  const int64_t quantized = planner.Largest(history - uint32_t(full), both);
  return both(uint32_t(std::max<int64_t>(0, quantized)));
}

}  // namespace qevict
