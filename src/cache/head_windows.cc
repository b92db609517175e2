#include "cache/head_windows.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "kernels/q8.h"

namespace qevict {
void RoutingScratch::Reserve(size_t windows, const CodeFormat& format) {
  places.reserve(windows);
  promoted.reserve(windows);
  entries.reserve(windows);
  entry_place.reserve(windows);
  decision.Reserve(windows);
  page.resize(std::max(page.size(), format.page_bytes()));
  rows.resize(size_t{3} * format.head_dim);
}

uint32_t HeadWindows::PagesFor(uint32_t windows) const {
  const uint32_t pages = CodePages(codes() + windows, context_.geometry.omega);
  return pages > page_count_ ? pages - page_count_ : 0;
}

HeadWindows::Counts HeadWindows::Commit(const Event& event, RoutingScratch& scratch) noexcept {
  const Geometry& g = context_.geometry;
  const uint32_t first_new = g.complete_windows(event.old_tokens);
  const uint32_t completed = g.complete_windows(event.new_tokens) - first_new;
  if (completed == 0 && event.full_mass == nullptr) return {};

  scratch.places.assign(storage_.full.begin(), storage_.full.begin() + full_);
  for (uint32_t w = 0; w < completed; ++w)
    scratch.places.push_back({WindowId(first_new + w), 0.0f});
  if (completed != 0) {
    scratch.places[full_].score = open_score_;
    open_score_ = 0.0f;
  }
  if (event.full_mass != nullptr) AddMasses(event, scratch);
  if (!value_means_.empty()) KeepValueMeans(event, first_new, completed);

  Counts counts;
  scratch.promoted.clear();
  const uint32_t open_slot = FirstSlot(uint32_t(scratch.places.size()));
  if (g.history_windows(event.new_tokens) != g.history_windows(event.old_tokens)) {
    Rank(event, scratch);
    MoveCodes(event, scratch, counts);
    LeaveFullTier(event, scratch, counts);
  }
  // The open window closes up, then promoted windows come in between.
  const uint32_t stayed = uint32_t(scratch.places.size());
  if (event.new_tokens > g.sinks) {
    event.rows.Move(open_slot, FirstSlot(stayed + uint32_t(scratch.promoted.size())),
                    g.open_tokens(event.new_tokens));
  }
  for (const WindowRecord& record : scratch.promoted) {
    DecodeWindow(event, FindRetained(record.window), uint32_t(scratch.places.size()), scratch);
    scratch.places.push_back(record);
  }
  QEVICT_DCHECK(scratch.places.size() <= storage_.full.size());
  full_ = uint32_t(scratch.places.size());
  std::ranges::copy(scratch.places, storage_.full.begin());
  return counts;
}

void HeadWindows::AddMasses(const Event& event, RoutingScratch& scratch) noexcept {
  const auto add = [&event](std::span<WindowRecord> records, const float* masses) {
    for (size_t i = 0; i < records.size(); ++i) {
      float mass = masses[i];
      if (event.pooling == MassPooling::kNeighbours) {
        const uint32_t id = records[i].window.value;
        if (i > 0 && records[i - 1].window.value + 1 == id) mass = std::max(mass, masses[i - 1]);
        if (i + 1 < records.size() && records[i + 1].window.value == id + 1)
          mass = std::max(mass, masses[i + 1]);
      }
      records[i].score += mass;
    }
  };
  add(scratch.places, event.full_mass);
  add(storage_.codes.first(attended_), event.code_mass);
  open_score_ += event.full_mass[scratch.places.size()];
}

void HeadWindows::KeepValueMeans(const Event& event, uint32_t first_new,
                                 uint32_t completed) noexcept {
  const uint32_t omega = context_.geometry.omega;
  const size_t head_dim = context_.format.head_dim;
  const KvView view = event.rows.view();
  for (uint32_t w = 0; w < completed; ++w) {
    const size_t first = FirstSlot(full_ + w);
    float sum = 0.0f;
    for (size_t t = 0; t < omega; ++t) {
      for (size_t c = 0; c < head_dim; ++c) sum += std::abs(ValueAt(view, first + t, c, head_dim));
    }
    // Values that are not finite count as the largest: a score that is no number has no rank.
    const float mean = sum / float(omega * head_dim);
    value_means_[first_new + w] = F32ToF16(std::isfinite(mean) ? mean : 65504.0f);
  }
}

float HeadWindows::RankedScore(const Event& event, const WindowRecord& record) const noexcept {
  const uint32_t window = record.window.value;
  float score = record.score;
  if (!value_means_.empty()) score *= F16ToF32(value_means_[window]);
  if (!event.voters_before.empty()) {
    score /= float(std::max(1u, event.voters - event.voters_before[window]));
  }
  return score;
}

void HeadWindows::Rank(const Event& event, RoutingScratch& scratch) const noexcept {
  const uint32_t history = context_.geometry.history_windows(event.new_tokens);
  scratch.entries.clear();
  scratch.entry_place.clear();
  for (uint32_t p = 0; p < scratch.places.size(); ++p) {
    const WindowRecord& record = scratch.places[p];
    if (record.window.value >= history) continue;  // local zone
    scratch.entries.push_back({record.window, Tier::kFull, RankedScore(event, record)});
    scratch.entry_place.push_back(p);
  }
  for (const WindowRecord& record : attended()) {
    scratch.entries.push_back({record.window, Tier::kQuantized, RankedScore(event, record)});
  }
  event.policy->Route(scratch.entries, event.capacity, scratch.decision);
}

// From the last code on: what a removal or a swap moves has been looked at before.
void HeadWindows::MoveCodes(const Event& event, RoutingScratch& scratch, Counts& counts) noexcept {
  const std::vector<TierMove>& moves = scratch.decision.moves;
  const uint32_t full_entries = uint32_t(scratch.entry_place.size());
  for (size_t m = moves.size(); m-- > 0 && moves[m].entry >= full_entries;) {
    const uint32_t code = moves[m].entry - full_entries;
    if (moves[m].to == Tier::kEvicted) {
      RemoveCode(code);
      ++counts.evictions;
    } else if (event.promotion == Promotion::kExpand) {
      scratch.promoted.push_back(storage_.codes[code]);
      SwapCodes(code, attended_ - 1, scratch);
      --attended_;
      ++retained_;
      ++counts.promotions;
    }
  }
}

void HeadWindows::LeaveFullTier(const Event& event, RoutingScratch& scratch,
                                Counts& counts) noexcept {
  const std::vector<TierMove>& moves = scratch.decision.moves;
  const size_t full_moves = size_t(std::ranges::count(moves, Tier::kFull, &TierMove::from));
  // Codes of evicted windows give way before those of demoted windows are added.
  for (size_t m = 0; m < full_moves; ++m) {
    if (moves[m].to != Tier::kEvicted) continue;
    ++counts.evictions;
    const WindowRecord& record = scratch.places[scratch.entry_place[moves[m].entry]];
    const uint32_t code = FindRetained(record.window);
    if (code != codes()) RemoveCode(code);
  }
  for (size_t m = 0; m < full_moves; ++m) {
    if (moves[m].to != Tier::kQuantized) continue;
    ++counts.demotions;
    const uint32_t place = scratch.entry_place[moves[m].entry];
    const WindowRecord& record = scratch.places[place];
    const uint32_t code = FindRetained(record.window);
    if (code == codes()) {
      EncodeWindow(event, place, record, scratch);
      ++counts.encoded;
    } else {
      SwapCodes(code, attended_, scratch);
      --retained_;
    }
    storage_.codes[attended_++] = record;
  }
  // The last window moves into each hole, from the last hole on.
  for (size_t m = full_moves; m-- > 0;) {
    const uint32_t place = scratch.entry_place[moves[m].entry];
    const uint32_t last = uint32_t(scratch.places.size()) - 1;
    event.rows.Move(FirstSlot(last), FirstSlot(place), context_.geometry.omega);
    scratch.places[place] = scratch.places[last];
    scratch.places.pop_back();
  }
}

// Into the first place behind the attended codes.
void HeadWindows::EncodeWindow(const Event& event, uint32_t place, const WindowRecord& record,
                               RoutingScratch& scratch) noexcept {
  const uint32_t omega = context_.geometry.omega;
  const CodeFormat& format = context_.format;
  const size_t head_dim = format.head_dim;
  while (page_count_ < CodePages(codes() + 1, omega)) {
    storage_.pages[page_count_++] = context_.pool->Take();
  }
  if (retained_ != 0) CopyCode(attended_, codes());
  float *mu = scratch.rows.data(), *key = mu + head_dim, *value = key + head_dim;
  context_.codec->MeanOf(context_.layer, context_.kv_head, record.window, mu);
  const HeadCodec& codec = head_codec();
  for (uint32_t t = 0; t < omega; ++t) {
    const uint32_t slot = FirstSlot(place) + t, token = attended_ * omega + t;
    event.rows.Read(slot, key, value);
    CodedToken coded;
    codec.EncodeKey(key, mu, coded.key);
    codec.EncodeValue(value, coded.value);
    PutToken(format, storage_.pages[token / kCodePageTokens], token % kCodePageTokens, coded);
  }
}

void HeadWindows::DecodeWindow(const Event& event, uint32_t code, uint32_t place,
                               RoutingScratch& scratch) noexcept {
  const uint32_t omega = context_.geometry.omega;
  const CodeFormat& format = context_.format;
  const size_t head_dim = format.head_dim;
  float *mu = scratch.rows.data(), *key = mu + head_dim, *value = key + head_dim;
  context_.codec->MeanOf(context_.layer, context_.kv_head, storage_.codes[code].window, mu);
  const HeadCodec& codec = head_codec();
  for (uint32_t t = 0; t < omega; ++t) {
    const uint32_t slot = FirstSlot(place) + t, token = code * omega + t;
    const CodedToken coded =
        GetToken(format, storage_.pages[token / kCodePageTokens], token % kCodePageTokens);
    codec.DecodeKey(coded.key, mu, key);
    codec.DecodeValue(coded.value, value);
    event.rows.Write(slot, key, value);
  }
}

void HeadWindows::CopyCode(uint32_t from, uint32_t to) noexcept {
  if (from == to) return;
  const uint32_t omega = context_.geometry.omega;
  for (uint32_t t = 0; t < omega; ++t) {
    const uint32_t source = from * omega + t, target = to * omega + t;
    CopyToken(context_.format, storage_.pages[source / kCodePageTokens], source % kCodePageTokens,
              storage_.pages[target / kCodePageTokens], target % kCodePageTokens);
  }
  storage_.codes[to] = storage_.codes[from];
}

void HeadWindows::SwapCodes(uint32_t a, uint32_t b, RoutingScratch& scratch) noexcept {
  if (a == b) return;
  const uint32_t omega = context_.geometry.omega;
  const CodeFormat& format = context_.format;
  for (uint32_t t = 0; t < omega; ++t) {
    const uint32_t slot_a = a * omega + t, slot_b = b * omega + t;
    uint8_t* page_a = storage_.pages[slot_a / kCodePageTokens];
    uint8_t* page_b = storage_.pages[slot_b / kCodePageTokens];
    CopyToken(format, page_a, slot_a % kCodePageTokens, scratch.page.data(), 0);
    CopyToken(format, page_b, slot_b % kCodePageTokens, page_a, slot_a % kCodePageTokens);
    CopyToken(format, scratch.page.data(), 0, page_b, slot_b % kCodePageTokens);
  }
  std::swap(storage_.codes[a], storage_.codes[b]);
}

// The last code of the same kind moves into the hole, then the last retained one behind the
// attended.
void HeadWindows::RemoveCode(uint32_t code) noexcept {
  const uint32_t last = codes() - 1;
  if (code < attended_) {
    CopyCode(attended_ - 1, code);
    CopyCode(last, attended_ - 1);
    --attended_;
  } else {
    CopyCode(last, code);
    --retained_;
  }
  while (page_count_ > CodePages(codes(), context_.geometry.omega)) {
    context_.pool->Give(storage_.pages[--page_count_]);
  }
}

uint32_t HeadWindows::FindRetained(WindowId window) const noexcept {
  const auto kept = retained();
  const auto found = std::ranges::find(kept, window, &WindowRecord::window);
  return attended_ + uint32_t(found - kept.begin());
}

void HeadWindows::Clear() noexcept {
  while (page_count_ > 0) context_.pool->Give(storage_.pages[--page_count_]);
  full_ = attended_ = retained_ = 0;
  open_score_ = 0.0f;
}

}  // namespace qevict
