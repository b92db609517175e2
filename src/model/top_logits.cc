#include "model/top_logits.h"

#include <algorithm>
#include <array>
#include <limits>

namespace qevict {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// A width that the compiler turns into a few vector registers. The comparison below is what the
// max instructions do, NaN included, so it needs no -ffast-math.
constexpr size_t kLanes = 16;

float Max(std::span<const float> values) {
  std::array<float, kLanes> lanes;
  lanes.fill(kNone);
  size_t at = 0;
  for (; at + kLanes <= values.size(); at += kLanes) {
    const float* block = values.data() + at;
    for (size_t i = 0; i < kLanes; ++i) lanes[i] = block[i] > lanes[i] ? block[i] : lanes[i];
  }
  float max = kNone;
  for (const float lane : lanes) max = lane > max ? lane : max;
  for (; at < values.size(); ++at) max = values[at] > max ? values[at] : max;
  return max;
}

// Calls `visit(part, first token of the part)` for what lies between the overridden logits.
template <typename Visit>
void ForEachPart(const LogitView& view, const Visit& visit) {
  size_t begin = 0;
  for (const ScoredToken& overridden : view.overrides) {
    const size_t end = size_t(overridden.token);
    if (end > begin) visit(view.logits.subspan(begin, end - begin), Token(begin));
    begin = end + 1;
  }
  if (begin < view.logits.size()) visit(view.logits.subspan(begin), Token(begin));
}

bool Better(const ScoredToken& a, const ScoredToken& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// Keeps the best `count`; the worst of them is at the front of the heap.
class BestOf {
 public:
  BestOf(size_t count, std::vector<ScoredToken>& heap) : count_(count), heap_(heap) {}
  void Offer(ScoredToken token) {
    if (!(token.logit > kNone)) return;
    if (heap_.size() < count_) {
      heap_.push_back(token);
      std::ranges::push_heap(heap_, Better);
    } else if (Better(token, heap_.front())) {
      std::ranges::pop_heap(heap_, Better);
      heap_.back() = token;
      std::ranges::push_heap(heap_, Better);
    }
  }
  void OfferAll(std::span<const float> logits, Token first) {
    constexpr size_t kBlock = 64;
    for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
      const auto block = logits.subspan(begin, std::min(kBlock, logits.size() - begin));
      // Tokens come in ascending order, so an equal logit cannot displace one that is in.
      const bool full = heap_.size() == count_;
      if (full && !(Max(block) > heap_.front().logit)) continue;
      for (const float& logit : block) Offer({Token(first + (&logit - logits.data())), logit});
    }
  }

 private:
  size_t count_;
  std::vector<ScoredToken>& heap_;
};

}  // namespace

std::optional<ScoredToken> LargestLogit(const LogitView& view) {
  constexpr size_t kBlock = 1024;
  ScoredToken best{0, kNone};
  ForEachPart(view, [&](std::span<const float> part, Token first) {
    // One pass: only a block that beats all before it is searched for the place of its maximum.
    for (size_t begin = 0; begin < part.size(); begin += kBlock) {
      const auto block = part.subspan(begin, std::min(kBlock, part.size() - begin));
      const float max = Max(block);
      if (!(max > best.logit)) continue;
      const size_t place = size_t(std::ranges::find(block, max) - block.begin());
      best = {Token(size_t(first) + begin + place), max};
    }
  });
  for (const ScoredToken& overridden : view.overrides) {
    if (overridden.logit > kNone && Better(overridden, best)) best = overridden;
  }
  if (best.logit == kNone) return std::nullopt;
  return best;
}

void FiniteLogits(const LogitView& view, std::vector<ScoredToken>& out) {
  out.clear();
  ForEachPart(view, [&](std::span<const float> part, Token first) {
    for (const float& logit : part) {
      if (logit > kNone) out.push_back({Token(first + (&logit - part.data())), logit});
    }
  });
  for (const ScoredToken& overridden : view.overrides) {
    if (overridden.logit > kNone) out.push_back(overridden);
  }
}

void LargestLogits(const LogitView& view, size_t count, std::vector<ScoredToken>& out) {
  out.clear();
  if (count == 0) return;
  // A heap wins while nearly every token is turned away at its door.
  if (count > view.logits.size() / 32) {
    FiniteLogits(view, out);
    const auto end = out.begin() + ptrdiff_t(std::min(count, out.size()));
    std::nth_element(out.begin(), end, out.end(), Better);
    std::sort(out.begin(), end, Better);
    out.erase(end, out.end());
    return;
  }
  BestOf best(count, out);
  ForEachPart(view, [&](std::span<const float> part, Token first) { best.OfferAll(part, first); });
  for (const ScoredToken& overridden : view.overrides) best.Offer(overridden);
  std::ranges::sort_heap(out, Better);
}

}  // namespace qevict
