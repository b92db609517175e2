#include "cache/sequence_kv.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "cache/grow_room.h"
#include "core/check.h"
#include "core/out_of_memory.h"

namespace qevict {
namespace {

const float* MassFloats(std::span<const MassUnits> masses, std::vector<float>& floats) {
  std::ranges::transform(masses, floats.begin(), FromMassUnits);
  return floats.data();
}

constexpr char kNoWorkingRoom[] =
    "not enough memory for the working room of routing; lower --chunk or --ctx";

}  // namespace

Result<SequenceKv> SequenceKv::Create(const KvShape& shape, const Config& config) {
  QEVICT_CHECK_LT(0u, config.capacity_tokens);
  QEVICT_CHECK(config.codec != nullptr || config.plan.code_windows() == 0);
  return OrOutOfMemory("its lists do not fit", [&]() -> Result<SequenceKv> {
    SequenceKv kv(shape, config);
    QEVICT_RETURN_IF_ERROR(kv.AllocateTiers());
    if (config.observer != nullptr) kv.observed_sequence_ = config.observer->OnSequence(kv);
    return kv;
  });
}

Status SequenceKv::AllocateTiers() {
  const CachePlan& plan = config_.plan;
  // Without a limit the plan's own bytes are one.
  const bool limited = tiered() && plan.limit_bytes != UINT64_MAX;
  budget_ = std::make_unique<ByteBudget>(limited ? plan.limit_bytes : plan.total_bytes());
  QEVICT_ASSIGN_OR_RETURN(ByteBudget::Claim claim, budget_->Reserve(plan.full_bytes));
  claims_.push_back(std::move(claim));
  // One allocation, so that either the whole tier fits into memory or nothing was taken.
  const uint32_t ring = RingSlots(shape_, config_.capacity_tokens, config_.max_batch_tokens);
  QEVICT_ASSIGN_OR_RETURN(
      resident_, FullRegion::Allocate(shape_, plan.kv_type, {.full = plan.full_slots, .ring = ring},
                                      FullRegion::Layers::kApart));
  QEVICT_CHECK_EQ(resident_.size_bytes(), plan.full_bytes);
  if (tiered()) QEVICT_RETURN_IF_ERROR(AllocateLedger());
  const uint32_t history = config_.geometry.history_windows(config_.capacity_tokens);
  tracks_mass_ = tiered() && plan.capacity.full < history && plan.capacity.quantized < history;
  return {};
}

Result<SequenceKv> SequenceKv::CreateFull(const KvShape& shape, uint32_t capacity_tokens,
                                          uint32_t max_batch_tokens, KvType type) {
  Config config{.capacity_tokens = capacity_tokens, .max_batch_tokens = max_batch_tokens};
  QEVICT_ASSIGN_OR_RETURN(config.plan, PlanCache(shape, {.split = TierSplit::kFullOnly,
                                                         .capacity_tokens = capacity_tokens,
                                                         .max_batch_tokens = max_batch_tokens,
                                                         .limit_bytes = UINT64_MAX,
                                                         .kv_type = type}));
  return Create(shape, config);
}

void SequenceKv::MakePools() {
  const CachePlan& plan = config_.plan;
  QEVICT_CHECK_EQ(plan.formats.size(), size_t{RoutedLayers(shape_)} * shape_.kv_heads);
  const uint64_t pages = CodePages(plan.code_windows(), config_.geometry.omega);
  const std::vector<FormatCount> counts = CountFormats(plan.formats);
  for (const FormatCount& count : counts) {
    pools_.push_back(
        std::make_unique<PagePool>(PagePool::Config{.page_bytes = count.format.page_bytes(),
                                                    .slab_pages = kSlabPages,
                                                    .most_pages = count.heads * pages},
                                   *budget_));
  }
  for (const CodeFormat& format : plan.formats) {
    const auto found = std::ranges::find(counts, format, &FormatCount::format);
    pool_of_.push_back(uint32_t(found - counts.begin()));
  }
}

Status SequenceKv::AllocateLedger() {
  const CachePlan& plan = config_.plan;
  const uint32_t full = plan.full_slots / config_.geometry.omega, codes = plan.code_windows();
  const uint32_t pages = CodePages(codes, config_.geometry.omega);
  QEVICT_ASSIGN_OR_RETURN(ByteBudget::Claim claim, budget_->Reserve(plan.ledger_bytes));
  claims_.push_back(std::move(claim));
  QEVICT_ASSIGN_OR_RETURN(ledger_, AlignedBuffer::Allocate(plan.ledger_bytes));
  MakePools();

  auto* next = ledger_.as<uint8_t>();
  const auto take = [&next]<typename T>(T*, uint32_t count) {
    const std::span<T> array(reinterpret_cast<T*>(next), count);
    next += array.size_bytes();
    return array;
  };
  routed_index_.resize(shape_.layers);
  for (uint32_t l = 0, routed = 0; l < shape_.layers; ++l) {
    if (shape_.is_swa(l)) continue;
    routed_index_[l] = routed++;
    for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
      HeadWindows::Storage storage;
      storage.pages = take(static_cast<uint8_t**>(nullptr), pages);
      storage.full = take(static_cast<WindowRecord*>(nullptr), full);
      storage.codes = take(static_cast<WindowRecord*>(nullptr), codes);
      const size_t index = heads_.size();
      heads_.emplace_back(storage, HeadWindows::Context{.geometry = config_.geometry,
                                                        .format = plan.formats[index],
                                                        .codec = config_.codec,
                                                        .pool = pools_[pool_of_[index]].get(),
                                                        .layer = LayerId(l),
                                                        .kv_head = KvHeadId(h)});
    }
  }
  const ScoringConfig& scoring = config_.scoring;
  const uint32_t windows = config_.geometry.complete_windows(config_.capacity_tokens);
  if (scoring.per_voter) voters_before_ = take(static_cast<uint32_t*>(nullptr), windows);
  if (scoring.value_weighted) {
    for (HeadWindows& head : heads_) {
      head.WeightByValues(take(static_cast<F16*>(nullptr), windows));
    }
  }
  QEVICT_CHECK_LE(size_t(next - ledger_.as<uint8_t>()), ledger_.size_bytes());
  return {};
}

KvView SequenceKv::View(LayerId layer, KvHeadId head) const {
  return RegionOf(layer).Rows(layer, head).view();
}
KvRows SequenceKv::Rows(LayerId layer, KvHeadId head) { return RegionOf(layer).Rows(layer, head); }

uint32_t SequenceKv::cells(LayerId layer, KvHeadId head) const {
  return passed_tokens_ +
         (routed(layer) ? windows(layer, head).FullTokens(size_tokens_) : size_tokens_);
}

uint32_t SequenceKv::most_cells() const {
  uint32_t most = 0;
  for (const HeadWindows& head : heads_) most = std::max(most, head.FullTokens(size_tokens_));
  return most;
}

std::array<SlotRange, 2> SequenceKv::Slots(LayerId layer, uint32_t begin, uint32_t end) const {
  const uint32_t slots = RegionOf(layer).slots(layer);
  QEVICT_DCHECK(begin <= end && end - begin <= slots);
  const uint32_t first_slot = begin % slots;
  const uint32_t first_count = std::min(end - begin, slots - first_slot);
  return {SlotRange{first_slot, first_slot + first_count, begin},
          SlotRange{0, end - begin - first_count, begin + first_count}};
}

uint32_t SequenceKv::VisibleFrom(LayerId layer, uint32_t cell) const {
  if (!shape_.is_swa(layer.value) || cell < shape_.swa_window) return 0;
  return cell + 1 - shape_.swa_window;
}

Status SequenceKv::BeginBatch(uint32_t tokens) {
  QEVICT_CHECK_LE(tokens, config_.capacity_tokens - size_tokens_);
  if (tiered()) {
    const Status prepared = OrOutOfMemory(kNoWorkingRoom, [&] { return PrepareBatch(tokens); });
    if (!prepared.ok()) {
      staging_ = {};
      return prepared;
    }
  }
  batch_tokens_ = tokens;
  written_tokens_ = std::max(written_tokens_, size_tokens_ + tokens);
  return {};
}

Status SequenceKv::PrepareBatch(uint32_t tokens) {
  const uint32_t new_size = size_tokens_ + tokens;
  if (codes()) QEVICT_RETURN_IF_ERROR(config_.codec->Grow(new_size));
  QEVICT_RETURN_IF_ERROR(PrepareRouting(new_size));
  QEVICT_RETURN_IF_ERROR(FitFullTier(tokens));
  PrepareMasses(0, uint32_t(heads_.size()), new_size);
  PrepareVoters(tokens);
  return {};
}

// The pages and the working room that the commit of the batch may need.
Status SequenceKv::PrepareRouting(uint32_t new_size) {
  const Geometry& g = config_.geometry;
  const uint32_t history = g.history_windows(size_tokens_);
  const uint32_t grown = g.history_windows(new_size) - history;
  pool_pages_.assign(pools_.size(), 0);
  size_t windows = 0;
  for (size_t h = 0; h < heads_.size(); ++h) {
    const HeadWindows& head = heads_[h];
    const uint32_t codes = uint32_t(head.attended().size() + head.retained().size());
    // An event may demote every full window of the history, those without a code among them.
    const auto in_history = [history](const WindowRecord& r) { return r.window.value < history; };
    const uint32_t uncoded =
        uint32_t(std::ranges::count_if(head.full(), in_history)) - uint32_t(head.retained().size());
    pool_pages_[pool_of_[h]] +=
        head.PagesFor(std::min(grown + uncoded, config_.plan.code_windows() - codes));
    windows = std::max(windows, head.full().size() + codes);
  }
  windows += g.complete_windows(new_size) - g.complete_windows(size_tokens_);
  for (const HeadWindows& head : heads_) scratch_.Reserve(windows, head.format());
  if (config_.observer != nullptr) moves_.reserve(windows);
  for (size_t p = 0; p < pools_.size(); ++p)
    QEVICT_RETURN_IF_ERROR(pools_[p]->Reserve(pool_pages_[p]));
  return {};
}

// Room for the batch behind the tokens that are there: in the tier, or, for a prompt's chunk, in a
// staging region from which the commit takes what stays.
Status SequenceKv::FitFullTier(uint32_t tokens) {
  staging_ = {};  // of a batch that was never committed
  const uint32_t needed = most_cells() + tokens;
  if (needed <= config_.plan.full_slots) return {};
  QEVICT_RETURN_IF_ERROR(AllocateStaging(needed, FullRegion::Layers::kApart));
  CopyFullTier(resident_, staging_);
  return {};
}

Status SequenceKv::AllocateStaging(uint32_t tokens, FullRegion::Layers layers) {
  QEVICT_ASSIGN_OR_RETURN(staging_,
                          FullRegion::Allocate(shape_, config_.plan.kv_type,
                                               {.full = uint32_t(WholeKeyBlocks(tokens))}, layers));
  staging_peak_bytes_ = std::max(staging_peak_bytes_, staging_bytes());
  return {};
}

void SequenceKv::CopyFullTier(const FullRegion& from, const FullRegion& to) const noexcept {
  for (uint32_t l = 0; l < shape_.layers; ++l) {
    if (!shape_.is_swa(l)) CopyLayer(from, to, LayerId(l), size_tokens_);
  }
}

void SequenceKv::CopyLayer(const FullRegion& from, const FullRegion& to, LayerId layer,
                           uint32_t size) const noexcept {
  for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
    const KvHeadId head(h);
    to.Rows(layer, head).CopyFrom(from.Rows(layer, head), windows(layer, head).FullTokens(size));
  }
}

void SequenceKv::PrepareMasses(uint32_t first_head, uint32_t last_head, uint32_t new_size) {
  if (!tracks_mass_) return;
  const Geometry& g = config_.geometry;
  const uint32_t completed = g.complete_windows(new_size) - g.complete_windows(size_tokens_);
  mass_ranges_.resize(heads_.size());
  size_t count = 0, most_full = 0, most_codes = 0;
  for (uint32_t h = first_head; h < last_head; ++h) {
    mass_ranges_[h] = {.first = count,
                       .full = uint32_t(heads_[h].full().size()) + completed + 1,
                       .codes = uint32_t(heads_[h].attended().size())};
    count += mass_ranges_[h].full + mass_ranges_[h].codes;
    most_full = std::max<size_t>(most_full, mass_ranges_[h].full);
    most_codes = std::max<size_t>(most_codes, mass_ranges_[h].codes);
  }
  masses_.assign(count, 0);
  GrowRoom(full_floats_, most_full);
  GrowRoom(code_floats_, most_codes);
}

uint32_t SequenceKv::VotersFrom(uint32_t tokens) const {
  if (tokens > 1) return tokens - std::min(tokens, config_.scoring.prior_tokens);
  const Geometry& g = config_.geometry;
  const bool votes = config_.scoring.when == ScoreWhen::kStep ||
                     g.history_windows(size_tokens_ + 1) != g.history_windows(size_tokens_);
  return votes ? 0 : tokens;
}

// How many voters stand before each window that begins in the batch, or in a prompt of `tokens`.
void SequenceKv::PrepareVoters(uint32_t tokens) {
  if (!tracks_mass_) return;
  const Geometry& g = config_.geometry;
  const uint32_t first_voter = size_tokens_ + VotersFrom(tokens);
  batch_voters_ = size_tokens_ + tokens - first_voter;
  const uint32_t new_size = size_tokens_ + tokens;
  for (uint32_t w = g.complete_windows(size_tokens_);
       w < voters_before_.size() && g.first_position(WindowId(w)).value < new_size; ++w) {
    const uint32_t position = g.first_position(WindowId(w)).value;
    if (position < size_tokens_) continue;  // it has begun before
    voters_before_[w] = voters_ + position - std::min(position, first_voter);
  }
}

std::span<MassUnits> SequenceKv::full_mass(LayerId layer, KvHeadId head) const {
  const MassRange& range = mass_ranges_[HeadIndex(layer, head)];
  return {masses_.data() + range.first, range.full};
}

std::span<MassUnits> SequenceKv::code_mass(LayerId layer, KvHeadId head) const {
  const MassRange& range = mass_ranges_[HeadIndex(layer, head)];
  return {masses_.data() + range.first + range.full, range.codes};
}

void SequenceKv::CommitHeads(LayerId layer, uint32_t new_size) noexcept {
  const bool prompt = new_size - size_tokens_ > 1;
  const bool votes = tracks_mass_ && batch_voters_ != 0;
  for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
    const KvHeadId head(h);
    const auto start = std::chrono::steady_clock::now();
    const HeadWindows::Counts counts = heads_[HeadIndex(layer, head)].Commit(
        {.old_tokens = size_tokens_,
         .new_tokens = new_size,
         .capacity = config_.plan.capacity,
         .promotion = config_.promotion,
         .policy = config_.policy,
         .rows = Rows(layer, head),
         .full_mass = votes ? MassFloats(full_mass(layer, head), full_floats_) : nullptr,
         .code_mass = votes ? MassFloats(code_mass(layer, head), code_floats_) : nullptr,
         .pooling = prompt ? config_.scoring.prior_pooling : MassPooling::kNone,
         .voters_before = voters_before_,
         .voters = voters_ + batch_voters_},
        scratch_);
    stats_.routing_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    stats_.demotions += counts.demotions;
    stats_.promotions += counts.promotions;
    stats_.evictions += counts.evictions;
    stats_.encoded += counts.encoded;
    if (config_.observer != nullptr && ReviewsHistory(new_size)) ReportMoves(layer, head);
  }
}

// What the head's review, which scratch_ still holds, has moved.
void SequenceKv::ReportMoves(LayerId layer, KvHeadId head) noexcept {
  moves_.clear();
  for (const TierMove& move : scratch_.decision.moves) {
    if (move.to == Tier::kFull && config_.promotion == Promotion::kPin) continue;  // not made
    const LedgerEntry& entry = scratch_.entries[move.entry];
    moves_.push_back({entry.window, move.from, move.to, entry.score});
  }
  if (!moves_.empty()) config_.observer->OnMoves(layer, head, moves_);
}

// Behind a commit that has reviewed the history and set the new size.
void SequenceKv::EndEvent(uint32_t batch_tokens) noexcept {
  ++stats_.events;
  if (config_.observer == nullptr) return;
  const TierStats now = stats();
  config_.observer->OnReview(
      {.sequence = observed_sequence_,
       .position_tokens = size_tokens_,
       .batch_tokens = batch_tokens,
       .history_windows = config_.geometry.history_windows(size_tokens_),
       .windows = {now.full_windows, now.quantized_windows, now.evicted_windows},
       .encoded = now.encoded - stats_reported_.encoded,
       .used_bytes = budget_->used_bytes(),
       .limit_bytes = budget_->limit_bytes(),
       .seconds = now.routing_seconds - stats_reported_.routing_seconds});
  stats_reported_ = now;
}

void SequenceKv::Commit() noexcept {
  const uint32_t new_size = size_tokens_ + batch_tokens_;
  const bool reviewed = ReviewsHistory(new_size);
  for (uint32_t l = 0; l < shape_.layers; ++l) {
    if (routed(LayerId(l))) CommitHeads(LayerId(l), new_size);
  }
  size_tokens_ = new_size;
  voters_ += batch_voters_;
  batch_voters_ = 0;
  if (!staging_.empty()) CopyFullTier(staging_, resident_);
  staging_ = {};
  if (reviewed) EndEvent(batch_tokens_);
  batch_tokens_ = 0;
}

void SequenceKv::AbandonBatch() noexcept {
  staging_ = {};
  batch_tokens_ = passed_tokens_ = batch_voters_ = 0;
  // Rings have lost what the batch wrote over, but an empty sequence needs nothing of them.
  if (size_tokens_ == 0) written_tokens_ = 0;
}

Status SequenceKv::BeginPrompt(uint32_t tokens) {
  QEVICT_CHECK_EQ(size_tokens_, 0u);
  QEVICT_CHECK_LE(tokens, config_.capacity_tokens);
  const Status prepared = OrOutOfMemory(kNoWorkingRoom, [&] { return PreparePrompt(tokens); });
  if (!prepared.ok()) {
    staging_ = {};
    return prepared;
  }
  prompt_tokens_ = tokens;
  stats_before_prompt_ = stats_;
  return {};
}

Status SequenceKv::PreparePrompt(uint32_t tokens) {
  staging_ = {};  // of a batch that was never committed
  if (codes()) QEVICT_RETURN_IF_ERROR(config_.codec->Grow(tokens));
  QEVICT_RETURN_IF_ERROR(PrepareRouting(tokens));
  QEVICT_RETURN_IF_ERROR(AllocateStaging(tokens, FullRegion::Layers::kShared));
  // So that BeginLayer, which needs as much, allocates nothing.
  PrepareMasses(0, shape_.kv_heads, tokens);
  PrepareVoters(tokens);
  return {};
}

void SequenceKv::BeginLayer(LayerId layer) {
  passed_tokens_ = 0;
  if (!routed(layer)) return;
  const uint32_t first = uint32_t(HeadIndex(layer, KvHeadId(0)));
  PrepareMasses(first, first + shape_.kv_heads, prompt_tokens_);
}

void SequenceKv::CommitLayer(LayerId layer) noexcept {
  passed_tokens_ = 0;
  if (!routed(layer)) return;
  CommitHeads(layer, prompt_tokens_);
  CopyLayer(staging_, resident_, layer, prompt_tokens_);
}

void SequenceKv::EndPrompt() noexcept {
  const bool reviewed = ReviewsHistory(prompt_tokens_);
  staging_ = {};
  size_tokens_ = written_tokens_ = prompt_tokens_;
  voters_ += batch_voters_;
  if (reviewed) EndEvent(prompt_tokens_);
  prompt_tokens_ = passed_tokens_ = batch_voters_ = 0;
}

void SequenceKv::AbandonPrompt() noexcept {
  staging_ = {};
  for (HeadWindows& head : heads_) head.Clear();
  stats_ = stats_before_prompt_;
  if (config_.observer != nullptr) config_.observer->OnAbandon();
  prompt_tokens_ = passed_tokens_ = written_tokens_ = 0;
  voters_ = batch_voters_ = 0;
}

Status SequenceKv::Truncate(uint32_t size_tokens) {
  QEVICT_CHECK_LE(size_tokens, size_tokens_);
  if (size_tokens == size_tokens_) return {};
  if (tiered() && size_tokens != 0) {
    return Fail(ErrorCode::kUnsupported,
                "tokens that were routed cannot be taken back to position " +
                    std::to_string(size_tokens) + "; start a new sequence, or use --policy full");
  }
  for (uint32_t l = 0; l < shape_.layers; ++l) {
    if (!shape_.is_swa(l) || size_tokens == 0) continue;
    const uint32_t slots = resident_.slots(LayerId(l));
    const uint32_t kept_from = written_tokens_ > slots ? written_tokens_ - slots : 0;
    if (kept_from > VisibleFrom(LayerId(l), size_tokens)) {
      return Fail(
          ErrorCode::kUnsupported,
          "the sliding-window layers of this model no longer hold the tokens before position " +
              std::to_string(size_tokens) + "; start a new sequence instead");
    }
  }
  size_tokens_ = size_tokens;
  if (size_tokens == 0) {
    written_tokens_ = voters_ = 0;
    staging_ = {};
    for (HeadWindows& head : heads_) head.Clear();
    if (config_.observer != nullptr) config_.observer->OnClear(observed_sequence_);
  }
  return {};
}

uint64_t SequenceKv::code_bytes() const {
  uint64_t bytes = 0;
  for (const auto& pool : pools_) bytes += pool->used_bytes();
  return bytes;
}

TierStats SequenceKv::stats() const {
  TierStats stats = stats_;
  const uint64_t history = config_.geometry.history_windows(size_tokens_);
  for (const HeadWindows& head : heads_) {
    stats.full_windows += uint64_t(std::ranges::count_if(
        head.full(), [history](const WindowRecord& r) { return r.window.value < history; }));
    stats.quantized_windows += head.attended().size();
  }
  stats.evicted_windows = history * heads_.size() - stats.full_windows - stats.quantized_windows;
  return stats;
}

}  // namespace qevict
