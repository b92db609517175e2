// One head of a routed layer with a model of what it must hold, for head_windows_test.cc.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/head_windows.h"
#include "codec/code_page.h"
#include "kernels/f16.h"
#include "tests/cache/windows_case.h"

namespace qevict {

inline constexpr uint32_t kHeadDim = 32;
inline constexpr uint32_t kCapacityTokens = 8192, kSlots = 2048;

// Passes on what another policy decides, and keeps it.
class RecordingPolicy final : public RoutingPolicy {
 public:
  explicit RecordingPolicy(const RoutingPolicy& policy) : policy_(policy) {}
  void Route(std::span<const LedgerEntry> entries, TierCapacity capacity,
             RoutingDecision& decision) const override {
    policy_.Route(entries, capacity, decision);
    for (const TierMove& move : decision.moves)
      moves.emplace_back(entries[move.entry].window.value, move);
  }
  mutable std::vector<std::pair<uint32_t, TierMove>> moves;  // by window, of all events

 private:
  const RoutingPolicy& policy_;
};

enum class MassInput { kNone, kRandom, kPooled };

// One head, fed with random tokens, beside a model of what it must hold: a window's code is that of
// its first f16 values, whatever moves it made, and a promoted window holds what its code decodes
// to.
class HeadCase {
 public:
  HeadCase(const Geometry& geometry, TierCapacity capacity, Promotion promotion,
           const RoutingPolicy& policy)
      : geometry_(geometry),
        capacity_(capacity),
        promotion_(promotion),
        policy_(policy),
        shape_{.layers = 1, .kv_heads = 1, .group = 1, .head_dim = kHeadDim, .swa_layer = {}},
        codec_(test::MakeCodec(shape_, geometry, test::KeyMeans::kRandom)),
        pool_({.page_bytes = format_.page_bytes(),
               .slab_pages = 4,
               .most_pages = CodePages(Codes(), geometry.omega)},
              budget_),
        pages_(CodePages(Codes(), geometry.omega)),
        full_(kSlots / geometry.omega),
        codes_(Codes()),
        k_(AlignedBuffer::Allocate(kSlots * kHeadDim * sizeof(F16)).value()),
        v_(AlignedBuffer::Allocate(kSlots * kHeadDim * sizeof(F16)).value()) {
    EXPECT_TRUE(codec_->Grow(kCapacityTokens).ok());
    head_.emplace(HeadWindows::Storage{pages_, full_, codes_},
                  HeadWindows::Context{.geometry = geometry,
                                       .format = format_,
                                       .codec = codec_.get(),
                                       .pool = &pool_,
                                       .layer = LayerId(0),
                                       .kv_head = KvHeadId(0)});
  }

  // Scores are weighted by values from here on; the head is empty.
  void WeightByValues() { head_->WeightByValues(value_means_); }
  // The first value channel of every token to come.
  void SetValues(float x) { value_ = x; }

  // Stores `tokens` more behind those that are there, commits, and compares with the model.
  HeadWindows::Counts Append(uint32_t tokens, MassInput masses = MassInput::kNone) {
    const uint32_t new_size = size_ + tokens;
    const uint32_t first_slot = head_->FullTokens(size_);
    for (uint32_t t = 0; t < tokens; ++t) {
      Row key, value;
      for (uint32_t c = 0; c < kHeadDim; ++c) {
        key[c] = F32ToF16(random_.Normal());
        value[c] = F32ToF16(c == 0 && value_ ? *value_ : random_.Normal());
        k()[KeyOffset(first_slot + t, c, kHeadDim)] = key[c];
        v()[ValueOffset(first_slot + t, c, kHeadDim)] = value[c];
      }
      tokens_.push_back({key, value});
    }
    const uint32_t first_new = geometry_.complete_windows(size_);
    const uint32_t completed = geometry_.complete_windows(new_size) - first_new;
    std::vector<float> full_mass(head_->full().size() + completed + 1);
    std::vector<float> code_mass(head_->attended().size());
    if (masses != MassInput::kNone) {
      for (float& mass : full_mass) mass = float(random_.Below(64));  // sums of these are exact
      for (float& mass : code_mass) mass = float(random_.Below(64));
    }
    std::vector<float> counted = full_mass;
    if (masses == MassInput::kPooled) PoolNeighbours(counted);
    AddToScores(counted, code_mass, first_new, completed);
    EXPECT_TRUE(pool_.Reserve(head_->PagesFor(Codes() - CodeCount())).ok());
    scratch_.Reserve(head_->full().size() + CodeCount() + completed, format_);
    const RecordingPolicy recorder(policy_);
    HeadWindows::Event event{
        .old_tokens = size_,
        .new_tokens = new_size,
        .capacity = capacity_,
        .promotion = promotion_,
        .policy = &recorder,
        .rows = KvRows(KvType::kF16, kHeadDim, kSlots, k_.as<uint8_t>(), v_.as<uint8_t>())};
    if (masses != MassInput::kNone) {
      if (masses == MassInput::kPooled) event.pooling = MassPooling::kNeighbours;
      event.full_mass = full_mass.data();
      event.code_mass = code_mass.data();
    }
    const HeadWindows::Counts counts = head_->Commit(event, scratch_);
    size_ = new_size;
    for (uint32_t w = 0; w < completed; ++w) tiers_[first_new + w] = Tier::kFull;
    HeadWindows::Counts expected;
    for (const auto& [window, move] : recorder.moves) Apply(window, move, expected);
    EXPECT_EQ(counts.demotions, expected.demotions);
    EXPECT_EQ(counts.promotions, expected.promotions);
    EXPECT_EQ(counts.evictions, expected.evictions);
    EXPECT_EQ(counts.encoded, expected.encoded);
    EXPECT_EQ(pool_.used_bytes(), head_->page_count() * format_.page_bytes());
    ExpectModel();
    return counts;
  }
  void Clear() {
    head_->Clear();
    size_ = 0;
    tokens_.clear();
    tiers_.clear();
    encoded_.clear();
    expanded_.clear();
    scores_.clear();
    open_score_ = 0.0f;
    EXPECT_EQ(pool_.used_bytes(), 0u);
    ExpectModel();
  }

  const HeadWindows& head() const { return *head_; }
  uint32_t size() const { return size_; }
  const PagePool& pool() const { return pool_; }
  std::optional<uint32_t> PlaceOf(uint32_t window) const { return Find(head_->full(), window); }
  std::optional<uint32_t> CodeOf(uint32_t window) const { return Find(head_->attended(), window); }
  // The first key channel of what stands in a slot, as bits.
  F16 KeyAt(uint32_t slot) const { return k()[KeyOffset(slot, 0, kHeadDim)]; }
  F16 OriginalKey(uint32_t position) const { return tokens_[position].key[0]; }

 private:
  using Row = std::array<F16, kHeadDim>;
  struct Token {
    Row key, value;
    friend bool operator==(const Token&, const Token&) = default;
  };

  // As many codes as the full windows of the history and the quantized ones can have together.
  uint32_t Codes() const { return capacity_.full + capacity_.quantized; }
  uint32_t CodeCount() const {
    return uint32_t(head_->attended().size() + head_->retained().size());
  }
  F16* k() const { return k_.as<F16>(); }
  F16* v() const { return v_.as<F16>(); }

  static std::optional<uint32_t> Find(std::span<const WindowRecord> records, uint32_t window) {
    for (uint32_t i = 0; i < records.size(); ++i) {
      if (records[i].window.value == window) return i;
    }
    return std::nullopt;
  }

  // Of places in the order of their windows; the open window, which is last, has no neighbours yet.
  static void PoolNeighbours(std::vector<float>& masses) {
    const std::vector<float> own = masses;
    for (size_t i = 0; i + 1 < masses.size(); ++i) {
      if (i > 0) masses[i] = std::max(masses[i], own[i - 1]);
      if (i + 2 < masses.size()) masses[i] = std::max(masses[i], own[i + 1]);
    }
  }
  void AddToScores(const std::vector<float>& full, const std::vector<float>& codes,
                   uint32_t first_new, uint32_t completed) {
    const auto places = head_->full();
    for (uint32_t p = 0; p < places.size(); ++p) scores_[places[p].window.value] += full[p];
    for (uint32_t w = 0; w < completed; ++w) {
      scores_[first_new + w] = full[places.size() + w] + (w == 0 ? open_score_ : 0.0f);
    }
    if (completed != 0) open_score_ = 0.0f;
    open_score_ += full.back();
    const auto attended = head_->attended();
    for (uint32_t c = 0; c < attended.size(); ++c) scores_[attended[c].window.value] += codes[c];
  }

  void Apply(uint32_t window, const TierMove& move, HeadWindows::Counts& counts) {
    if (move.to == Tier::kEvicted) {
      ++counts.evictions;
      tiers_.erase(window);
      encoded_.erase(window);
      expanded_.erase(window);
      return;
    }
    if (move.to == Tier::kQuantized) {
      ++counts.demotions;
      counts.encoded += !encoded_[window];
      encoded_[window] = true;
    } else if (promotion_ == Promotion::kPin) {
      return;  // its code goes on being attended
    } else {
      ++counts.promotions;
      expanded_[window] = true;
    }
    tiers_[window] = move.to;
  }

  CodedToken Encode(const Token& token, uint32_t window) const {
    std::vector<float> mu(kHeadDim), key, value;
    for (F16 x : token.key) key.push_back(F16ToF32(x));
    for (F16 x : token.value) value.push_back(F16ToF32(x));
    codec_->MeanOf(LayerId(0), KvHeadId(0), WindowId(window), mu.data());
    CodedToken coded{};
    const HeadCodec& codec = codec_->head(LayerId(0), KvHeadId(0), format_);
    codec.EncodeKey(key.data(), mu.data(), coded.key);
    codec.EncodeValue(value.data(), coded.value);
    return coded;
  }
  Token Decoded(const Token& token, uint32_t window) const {
    const CodedToken coded = Encode(token, window);
    std::vector<float> mu(kHeadDim), key(kHeadDim), value(kHeadDim);
    codec_->MeanOf(LayerId(0), KvHeadId(0), WindowId(window), mu.data());
    const HeadCodec& codec = codec_->head(LayerId(0), KvHeadId(0), format_);
    codec.DecodeKey(coded.key, mu.data(), key.data());
    codec.DecodeValue(coded.value, value.data());
    Token decoded;
    for (uint32_t c = 0; c < kHeadDim; ++c) {
      decoded.key[c] = F32ToF16(key[c]);
      decoded.value[c] = F32ToF16(value[c]);
    }
    return decoded;
  }

  Token Stored(uint32_t slot) const {
    Token token;
    for (uint32_t c = 0; c < kHeadDim; ++c) {
      token.key[c] = k()[KeyOffset(slot, c, kHeadDim)];
      token.value[c] = v()[ValueOffset(slot, c, kHeadDim)];
    }
    return token;
  }

  void ExpectModel() const {
    const uint32_t omega = geometry_.omega, sinks = geometry_.sinks;
    uint32_t full = 0, attended = 0, retained = 0;
    for (const auto& entry : tiers_) {
      const auto window = entry.first;
      const Tier tier = entry.second;
      SCOPED_TRACE("window " + std::to_string(window) + " of " + std::to_string(size_) + " tokens");
      const auto score = [&] { return scores_.contains(window) ? scores_.at(window) : 0.0f; };
      const bool coded = encoded_.contains(window) && encoded_.at(window);
      if (tier == Tier::kFull) {
        ++full;
        const auto place = PlaceOf(window);
        ASSERT_TRUE(place.has_value());
        EXPECT_EQ(head_->full()[*place].score, score());
        for (uint32_t t = 0; t < omega; ++t) {
          const Token& original = tokens_[sinks + window * omega + t];
          const Token expected = expanded_.contains(window) ? Decoded(original, window) : original;
          ASSERT_EQ(Stored(sinks + *place * omega + t), expected) << "token " << t;
        }
        ASSERT_EQ(Find(head_->retained(), window).has_value(), coded);
        if (!coded) continue;
        ++retained;
        ExpectCode(uint32_t(head_->attended().size()) + *Find(head_->retained(), window), window);
      } else {
        ++attended;
        const auto code = CodeOf(window);
        ASSERT_TRUE(code.has_value());
        EXPECT_EQ(head_->attended()[*code].score, score());
        ExpectCode(*code, window);
      }
    }
    EXPECT_EQ(head_->full().size(), full);
    EXPECT_EQ(head_->attended().size(), attended);
    EXPECT_EQ(head_->retained().size(), retained);
    EXPECT_EQ(head_->page_count(), CodePages(attended + retained, omega));
    for (uint32_t t = 0; t < geometry_.sink_tokens(size_); ++t) {
      ASSERT_EQ(Stored(t), tokens_[t]) << "sink " << t;
    }
    const uint32_t open = geometry_.open_tokens(size_);
    EXPECT_EQ(head_->FullTokens(size_), geometry_.sink_tokens(size_) + full * omega + open);
    for (uint32_t t = 0; t < open; ++t) {
      ASSERT_EQ(Stored(sinks + full * omega + t), tokens_[size_ - open + t]) << "open token " << t;
    }
  }

  void ExpectCode(uint32_t code, uint32_t window) const {
    const uint32_t omega = geometry_.omega;
    for (uint32_t t = 0; t < omega; ++t) {
      const uint32_t slot = code * omega + t;
      const CodedToken stored =
          GetToken(format_, head_->pages()[slot / kCodePageTokens], slot % kCodePageTokens);
      const CodedToken expected = Encode(tokens_[geometry_.sinks + window * omega + t], window);
      ASSERT_TRUE(std::equal(stored.key.codes.begin(), stored.key.codes.begin() + kHeadDim,
                             expected.key.codes.begin()));
      ASSERT_TRUE(std::equal(stored.value.codes.begin(), stored.value.codes.begin() + kHeadDim,
                             expected.value.codes.begin()));
      ASSERT_EQ(stored.key.scale, expected.key.scale);
      ASSERT_EQ(stored.value.scale, expected.value.scale);
    }
  }

  Geometry geometry_;
  TierCapacity capacity_;
  Promotion promotion_;
  const RoutingPolicy& policy_;
  KvShape shape_;
  CodeFormat format_{kHeadDim, 3, 2};
  std::unique_ptr<WindowCodec> codec_;
  ByteBudget budget_{uint64_t{1} << 40};
  PagePool pool_;
  std::vector<uint8_t*> pages_;
  std::vector<WindowRecord> full_, codes_;
  std::vector<F16> value_means_ = std::vector<F16>(kCapacityTokens);
  std::optional<float> value_;
  AlignedBuffer k_, v_;
  std::optional<HeadWindows> head_;
  RoutingScratch scratch_;
  test::Random random_{4711};

  uint32_t size_ = 0;
  std::vector<Token> tokens_;       // by position, as they were stored
  std::map<uint32_t, Tier> tiers_;  // of windows that are not evicted
  std::map<uint32_t, bool> encoded_, expanded_;
  std::map<uint32_t, float> scores_;
  float open_score_ = 0.0f;
};

}  // namespace qevict
