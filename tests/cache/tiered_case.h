// A sequence with tiers that is fed random tokens and compared with the oracle, for the tests of
// the whole cache.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "cache/batch_attention.h"
#include "cache/cache_snapshot.h"
#include "cache/reference_attention.h"
#include "cache/reference_head.h"
#include "codec/code_page.h"
#include "kernels/q8.h"
#include "tests/cache/windows_case.h"

namespace qevict::test {

enum class RowContent { kRandom, kHugeKeys, kIdenticalKeys };
enum class Compared { kWithOracle, kNot };
// A budget that just holds `capacity`, with a policy that moves windows at random, or one for
// everything, with the policy by scores.
enum class Room { kTight, kUnlimited };

struct TieredConfig {
  KvShape shape;
  Geometry geometry;
  Room room = Room::kTight;
  TierSplit split = TierSplit::kFullAndCodes;  // of kUnlimited
  TierCapacity capacity;                       // of kTight
  Promotion promotion = Promotion::kExpand;
  KeyMeans means = KeyMeans::kZero;
  RowContent content = RowContent::kRandom;
  uint32_t capacity_tokens = 0, max_batch_tokens = 0;
  uint32_t threads = 1;
  std::vector<CodeRaise> raises = {};  // of kTight: sides of codes that have four bits
  bool tiers = true;                   // false: every token full
  bool reference = false;              // attends with ReferenceAttention
  RoutingObserver* observer = nullptr;
  const RoutingPolicy* policy = nullptr;  // null: as `room` says
  ScoringConfig scoring = {};
  KvType kv_type = KvType::kF16;
  void (*before_attend)() = nullptr;  // on each thread
  void (*after_attend)() = nullptr;
};

inline KvShape SmallShape(uint32_t head_dim, bool swa) {
  KvShape shape{.layers = 2,
                .kv_heads = 2,
                .group = 3,
                .head_dim = head_dim,
                .swa_layer = {},
                .score_scale = 1.0f / std::sqrt(float(head_dim))};
  if (swa) {
    shape.swa_window = 40;
    shape.swa_layer = {true, false};
  }
  return shape;
}

// The plan of a budget without a byte to spare, from the descriptions of cache_plan.h.
inline CachePlan TightPlan(const TieredConfig& config) {
  const Geometry& g = config.geometry;
  const auto blocks = [](uint64_t tokens) { return uint32_t((tokens + 15) / 16 * 16); };
  const uint64_t routed = RoutedLayers(config.shape), kv_heads = config.shape.kv_heads;
  CachePlan plan{.kv_type = config.kv_type,
                 .capacity = config.capacity,
                 .retained_windows = config.capacity.full,
                 .formats = std::vector<CodeFormat>(routed * kv_heads,
                                                    CodeFormat{config.shape.head_dim, 3, 2})};
  for (const CodeRaise& raise : config.raises) Raise(plan.formats[raise.head], raise.side);
  const uint32_t local_windows = (g.local + g.omega - 1) / g.omega + 1;
  plan.full_slots = blocks(g.sinks + (local_windows + config.capacity.full) * g.omega);
  const uint64_t rings =
      (config.shape.layers - routed) *
      uint64_t{RingSlots(config.shape, config.capacity_tokens, config.max_batch_tokens)};
  plan.full_bytes = AlignedBuffer::RoundedBytes((routed * plan.full_slots + rings) * kv_heads * 2 *
                                                KvRowBytes(config.kv_type, config.shape.head_dim));
  const uint32_t pages = CodePages(plan.code_windows(), g.omega);
  plan.ledger_bytes = AlignedBuffer::RoundedBytes(
      routed * kv_heads * LedgerHeadBytes(plan.full_slots / g.omega, plan.code_windows(), pages) +
      ScoringBytes(config.scoring, g.complete_windows(config.capacity_tokens), routed * kv_heads));
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> pool_bytes;
  for (const CodeFormat& format : plan.formats)
    pool_bytes[{format.key_bits, format.value_bits}] += pages * format.page_bytes();
  for (const auto& [format, bytes] : pool_bytes)
    plan.code_bytes += AlignedBuffer::RoundedBytes(bytes);
  plan.limit_bytes = plan.total_bytes();
  return plan;
}

class TieredCase {
 public:
  explicit TieredCase(const TieredConfig& config)
      : config_(config),
        codec_(MakeCodec(config.shape, config.geometry, config.means)),
        attention_(MakeAttention(config)),
        mapped_before_(AlignedBuffer::MappedBytes() - codec_->shared_bytes()) {
    plan_ = config.room == Room::kTight
                ? TightPlan(config)
                : PlanCache(config.shape, {.split = config.split,
                                           .geometry = config.geometry,
                                           .scoring = config.scoring,
                                           .capacity_tokens = config.capacity_tokens,
                                           .max_batch_tokens = config.max_batch_tokens,
                                           .limit_bytes = UINT64_MAX / 2,
                                           .kv_type = config.kv_type})
                      .value();
    kv_.emplace(NewSequence(plan_).value());
  }

  SequenceKv::Config SequenceConfig(const CachePlan& plan) {
    return {.capacity_tokens = config_.capacity_tokens,
            .max_batch_tokens = config_.max_batch_tokens,
            .geometry = config_.geometry,
            .plan = plan,
            .promotion = config_.promotion,
            .scoring = config_.scoring,
            .codec = config_.tiers ? codec_.get() : nullptr,
            .policy = config_.tiers ? &policy() : nullptr,
            .observer = config_.observer};
  }
  Result<SequenceKv> NewSequence(const CachePlan& plan) {
    return SequenceKv::Create(config_.shape, SequenceConfig(plan));
  }
  // Replaces the sequence by one whose budget ends at `limit_bytes`, whatever was planned.
  void LimitTo(uint64_t limit_bytes) {
    plan_.limit_bytes = limit_bytes;
    kv_.reset();
    kv_.emplace(NewSequence(plan_).value());
  }

  // One batch of tokens through all layers, from BeginBatch to Commit. Returns the outputs of all
  // layers, [layers, tokens, kv_heads * group * head_dim]. Rows depend on layer and position alone.
  std::vector<float> Step(uint32_t tokens, Compared compared = Compared::kNot) {
    const Status status = kv_->BeginBatch(tokens);
    EXPECT_TRUE(status.ok()) << status.error().message;
    return status.ok() ? Finish(tokens, compared) : std::vector<float>();
  }
  // The same behind a BeginBatch.
  std::vector<float> Finish(uint32_t tokens, Compared compared = Compared::kNot) {
    Bind({.kv = &*kv_, .tokens = tokens, .voters_from = kv_->VotersFrom(tokens)});
    std::vector<float> all;
    for (uint32_t l = 0; l < config_.shape.layers; ++l) {
      const Chunk chunk{kv_->size_tokens(), tokens, kv_->VotersFrom(tokens)};
      if (compared == Compared::kWithOracle) ClearMasses();
      RunLayer(LayerId(l), chunk, compared, all);
      if (compared == Compared::kWithOracle) CompareMasses(LayerId(l));
    }
    kv_->Commit();
    return all;
  }
  // A prompt into the empty sequence, layer by layer; the same outputs.
  std::vector<float> PromptByLayers(uint32_t tokens, Compared compared = Compared::kNot) {
    EXPECT_TRUE(kv_->BeginPrompt(tokens).ok());
    std::vector<float> all;
    for (uint32_t l = 0; l < config_.shape.layers; ++l) {
      kv_->BeginLayer(LayerId(l));
      if (compared == Compared::kWithOracle) ClearMasses();
      for (uint32_t first = 0; first < tokens; first += config_.max_batch_tokens) {
        const uint32_t count = std::min(config_.max_batch_tokens, tokens - first);
        kv_->SetPassed(first);
        const uint32_t voters = std::clamp(kv_->VotersFrom(tokens), first, first + count) - first;
        Bind({.kv = &*kv_, .tokens = count, .voters_from = voters});
        RunLayer(LayerId(l), {first, count, voters}, compared, all);
      }
      if (compared == Compared::kWithOracle) CompareMasses(LayerId(l));
      kv_->CommitLayer(LayerId(l));
    }
    kv_->EndPrompt();
    return all;
  }

  // What must hold between batches.
  void ExpectInvariants() const {
    EXPECT_THAT(ValidateInvariants(Snapshot(*kv_)), ::testing::IsEmpty());
  }
  // The same, and that bytes are counted as they are allocated. Only while this is the one case.
  void ExpectSound() const {
    ExpectInvariants();
    EXPECT_EQ(AlignedBuffer::MappedBytes() - mapped_before_ - attention_bytes_,
              kv_->budget().used_bytes() + kv_->staging_bytes() + codec_->shared_bytes());
  }

  // That every full token and every code is what the tokens that were fed make of it: a window's
  // code is that of its first full values, and one that was promoted holds what its code decodes
  // to.
  void ExpectStored() const {
    for (uint32_t l = 0; l < config_.shape.layers; ++l) {
      for (uint32_t h = 0; h < config_.shape.kv_heads; ++h) {
        SCOPED_TRACE("layer " + std::to_string(l) + ", KV head " + std::to_string(h));
        if (kv_->routed(LayerId(l))) {
          ExpectStoredWindows(LayerId(l), KvHeadId(h));
        } else {
          const uint32_t end = kv_->size_tokens(), from = kv_->VisibleFrom(LayerId(l), end);
          for (const SlotRange& range : kv_->Slots(LayerId(l), from, end)) {
            for (uint32_t slot = range.begin; slot < range.end; ++slot) {
              ExpectToken(LayerId(l), KvHeadId(h), slot,
                          Original(LayerId(l), KvHeadId(h), range.first + slot - range.begin));
            }
          }
        }
      }
    }
  }

  // The bits of every full value, as f32, and every code that attention would read, and the
  // retained codes.
  std::vector<uint16_t> Contents() const {
    std::vector<uint16_t> contents;
    const size_t head_dim = config_.shape.head_dim;
    for (uint32_t l = 0; l < config_.shape.layers; ++l) {
      for (uint32_t h = 0; h < config_.shape.kv_heads; ++h) {
        const LayerId layer(l);
        const KvHeadId head(h);
        const KvView view = kv_->View(layer, head);
        const uint32_t end = kv_->cells(layer, head);
        for (const SlotRange& range : kv_->Slots(layer, kv_->VisibleFrom(layer, end), end)) {
          for (size_t slot = range.begin; slot < range.end; ++slot) {
            for (size_t c = 0; c < head_dim; ++c) {
              for (const float x :
                   {KeyAt(view, slot, c, head_dim), ValueAt(view, slot, c, head_dim)}) {
                contents.push_back(uint16_t(std::bit_cast<uint32_t>(x)));
                contents.push_back(uint16_t(std::bit_cast<uint32_t>(x) >> 16));
              }
            }
          }
        }
        if (kv_->routed(layer)) AppendCodes(kv_->windows(layer, head), contents);
      }
    }
    return contents;
  }

  SequenceKv& kv() { return *kv_; }
  const CachePlan& plan() const { return plan_; }
  Random& random() { return random_; }
  // Largest distances from the oracle: of attention over f16 alone, by element, and of attention
  // over codes as well, |out - oracle| / |oracle| of a row.
  double largest_f16_error() const { return largest_f16_error_; }
  double largest_code_error() const { return largest_code_error_; }
  // Relative, of what a window received in a batch.
  double largest_mass_error() const { return largest_mass_error_; }

 private:
  static std::unique_ptr<CacheAttention> MakeAttention(const TieredConfig& config) {
    if (config.reference) return std::make_unique<ReferenceAttention>(config.shape, config.threads);
    return std::make_unique<BatchAttention>(config.shape, SelectIsa().value(), config.threads);
  }
  const RoutingPolicy& policy() const {
    if (config_.policy != nullptr) return *config_.policy;
    return config_.room == Room::kUnlimited ? static_cast<const RoutingPolicy&>(score_policy_)
                                            : shuffling_policy_;
  }

  struct Chunk {
    uint32_t first = 0, tokens = 0;  // positions
    uint32_t voters_from = 0;        // of these tokens, those from here on are counted in masses
  };

  void Bind(const BatchSlice& slice) {
    const uint64_t mapped = AlignedBuffer::MappedBytes();
    EXPECT_TRUE(attention_->Bind({&slice, 1}).ok());
    attention_bytes_ += AlignedBuffer::MappedBytes() - mapped;
  }

  // [tokens, floats] of the salt's own.
  std::vector<float> Rows(LayerId layer, const Chunk& chunk, size_t floats, uint64_t salt) const {
    std::vector<float> rows;
    for (uint32_t t = 0; t < chunk.tokens; ++t) {
      Random random((uint64_t{chunk.first} + t) << 16 | uint64_t{layer.value} << 8 | salt);
      for (size_t i = 0; i < floats; ++i) rows.push_back(random.Normal());
    }
    return rows;
  }

  std::vector<float> Keys(LayerId layer, const Chunk& chunk) const {
    const size_t kv_row = size_t{config_.shape.kv_heads} * config_.shape.head_dim;
    std::vector<float> k = Rows(layer, chunk, kv_row, 1);
    for (size_t i = 0; i < k.size(); ++i) {
      if (config_.content == RowContent::kHugeKeys) k[i] = k[i] < 0.0f ? -6e4f : 6e4f;
      if (config_.content == RowContent::kIdenticalKeys) k[i] = float(i % kv_row % 7) - 3.0f;
    }
    return k;
  }

  void RunLayer(LayerId layer, const Chunk& chunk, Compared compared, std::vector<float>& all) {
    const size_t kv_row = size_t{config_.shape.kv_heads} * config_.shape.head_dim;
    const size_t q_row = kv_row * config_.shape.group;
    const std::vector<float> k = Keys(layer, chunk);
    const std::vector<float> v = Rows(layer, chunk, kv_row, 2), q = Rows(layer, chunk, q_row, 3);
    std::vector<float> out(chunk.tokens * q_row, NAN);
    OnThreads([&](size_t t, size_t n) {
      attention_->Store(layer, {k.data(), kv_row}, {v.data(), kv_row}, t, n);
    });
    OnThreads([&](size_t t, size_t n) {
      if (config_.before_attend != nullptr) config_.before_attend();
      attention_->Attend(layer, {q.data(), q_row}, out.data(), t, n);
      if (config_.after_attend != nullptr) config_.after_attend();
    });
    if (compared == Compared::kWithOracle) Compare(layer, chunk, q, out);
    all.insert(all.end(), out.begin(), out.end());
  }

  void OnThreads(const std::function<void(size_t, size_t)>& work) const {
    std::vector<std::jthread> threads;
    for (uint32_t t = 1; t < config_.threads; ++t) threads.emplace_back(work, t, config_.threads);
    work(0, config_.threads);
  }

  void Compare(LayerId layer, const Chunk& chunk, const std::vector<float>& q,
               const std::vector<float>& out) {
    const size_t head_dim = config_.shape.head_dim, group = config_.shape.group;
    std::vector<float> expected(head_dim);
    for (uint32_t h = 0; h < config_.shape.kv_heads; ++h) {
      ReferenceHead oracle;
      oracle.Read(*kv_, layer, KvHeadId(h), chunk.tokens);
      const bool codes = kv_->routed(layer) && !kv_->windows(layer, KvHeadId(h)).attended().empty();
      for (uint32_t t = 0; t < chunk.tokens; ++t) {
        std::vector<ReferenceHead::Masses> group_masses(group);
        for (size_t g = 0; g < group; ++g) {
          const size_t row = ((t * config_.shape.kv_heads + h) * group + g) * head_dim;
          oracle.Attend(t, &q[row], expected.data(), &group_masses[g]);
          double difference = 0.0, whole = 0.0, largest = 0.0;
          for (size_t c = 0; c < head_dim; ++c) {
            const double error = double(out[row + c]) - double(expected[c]);
            difference += error * error;
            whole += double(expected[c]) * double(expected[c]);
            largest = std::isnan(error) ? INFINITY : std::max(largest, std::abs(error));
          }
          if (std::isinf(largest)) difference = INFINITY;
          double& record = codes ? largest_code_error_ : largest_f16_error_;
          record = std::max(record, codes ? std::sqrt(difference / whole) : largest);
        }
        if (t < chunk.voters_from || !kv_->tracks_mass(layer)) continue;
        Add(group_masses, &ReferenceHead::Masses::full, full_masses_[h]);
        Add(group_masses, &ReferenceHead::Masses::codes, code_masses_[h]);
      }
    }
  }

  // into[i] += the mean over the group, or the largest.
  void Add(const std::vector<ReferenceHead::Masses>& group,
           std::vector<double> ReferenceHead::Masses::*tier, std::vector<double>& into) const {
    const size_t windows = (group.front().*tier).size();
    into.resize(std::max(into.size(), windows));
    for (size_t w = 0; w < windows; ++w) {
      double sum = 0.0, most = 0.0;
      for (const ReferenceHead::Masses& masses : group) {
        sum += (masses.*tier)[w];
        most = std::max(most, (masses.*tier)[w]);
      }
      into[w] += config_.scoring.group == GroupMass::kMax ? most : sum / double(group.size());
    }
  }
  void ClearMasses() {
    full_masses_.assign(config_.shape.kv_heads, {});
    code_masses_.assign(config_.shape.kv_heads, {});
  }
  // What attention has counted for the current batch, against the oracle's sums.
  void CompareMasses(LayerId layer) {
    if (!kv_->tracks_mass(layer)) return;
    for (uint32_t h = 0; h < config_.shape.kv_heads; ++h) {
      const auto compare = [&](std::span<const MassUnits> actual, std::vector<double> expected) {
        if (expected.empty()) expected.resize(actual.size());  // no token has voted
        ASSERT_EQ(actual.size(), expected.size());
        for (size_t i = 0; i < actual.size(); ++i) {
          const double error =
              std::abs(double(FromMassUnits(actual[i])) - expected[i]) / (expected[i] + 1e-6);
          largest_mass_error_ = std::isnan(error) ? INFINITY : std::max(largest_mass_error_, error);
        }
      };
      compare(kv_->full_mass(layer, KvHeadId(h)), full_masses_[h]);
      compare(kv_->code_mass(layer, KvHeadId(h)), code_masses_[h]);
    }
  }

  struct TokenRows {
    std::vector<float> key, value;  // [head_dim]
  };
  // What the full tier gives back of these rows.
  TokenRows Stored(TokenRows rows) const {
    const size_t head_dim = config_.shape.head_dim;
    std::vector<F16> bytes(2 * kKeyBlockTokens * head_dim);  // more than int8 needs
    KvRows block(config_.kv_type, uint32_t(head_dim), kKeyBlockTokens,
                 reinterpret_cast<uint8_t*>(bytes.data()),
                 reinterpret_cast<uint8_t*>(bytes.data() + bytes.size() / 2));
    block.Write(3, rows.key.data(), rows.value.data());
    block.Read(3, rows.key.data(), rows.value.data());
    return rows;
  }

  TokenRows Original(LayerId layer, KvHeadId head, uint32_t position) const {
    const size_t head_dim = config_.shape.head_dim, kv_row = config_.shape.kv_heads * head_dim;
    const auto part = [&](const std::vector<float>& rows) {
      const auto first = rows.begin() + ptrdiff_t(head.value * head_dim);
      return std::vector<float>(first, first + ptrdiff_t(head_dim));
    };
    const Chunk token{position, 1};
    return Stored({part(Keys(layer, token)), part(Rows(layer, token, kv_row, 2))});
  }

  void ExpectToken(LayerId layer, KvHeadId head, uint32_t slot, const TokenRows& expected) const {
    const KvView view = kv_->View(layer, head);
    const size_t head_dim = config_.shape.head_dim;
    for (size_t c = 0; c < head_dim; ++c) {
      ASSERT_EQ(std::bit_cast<uint32_t>(KeyAt(view, slot, c, head_dim)),
                std::bit_cast<uint32_t>(expected.key[c]))
          << "slot " << slot;
      ASSERT_EQ(std::bit_cast<uint32_t>(ValueAt(view, slot, c, head_dim)),
                std::bit_cast<uint32_t>(expected.value[c]))
          << "slot " << slot;
    }
  }

  void ExpectStoredWindows(LayerId layer, KvHeadId head) const {
    const Geometry& g = config_.geometry;
    const HeadWindows& windows = kv_->windows(layer, head);
    const HeadCodec& codec = codec_->head(layer, head, windows.format());
    std::vector<WindowRecord> codes(windows.attended().begin(), windows.attended().end());
    codes.insert(codes.end(), windows.retained().begin(), windows.retained().end());
    std::map<uint32_t, TokenRows> decoded;  // by position
    std::vector<float> mu(config_.shape.head_dim);
    for (uint32_t code = 0; code < codes.size(); ++code) {
      codec_->MeanOf(layer, head, codes[code].window, mu.data());
      for (uint32_t t = 0; t < g.omega; ++t) {
        const uint32_t slot = code * g.omega + t;
        const uint32_t position = g.first_position(codes[code].window).value + t;
        const CodedToken stored = GetToken(
            windows.format(), windows.pages()[slot / kCodePageTokens], slot % kCodePageTokens);
        const TokenRows original = Original(layer, head, position);
        CodedToken expected{};
        codec.EncodeKey(original.key.data(), mu.data(), expected.key);
        codec.EncodeValue(original.value.data(), expected.value);
        for (const auto& [a, b] :
             {std::pair(&stored.key, &expected.key), std::pair(&stored.value, &expected.value)}) {
          ASSERT_TRUE(std::equal(a->codes.begin(), a->codes.begin() + mu.size(), b->codes.begin()))
              << "position " << position;
          ASSERT_EQ(a->scale, b->scale) << "position " << position;
        }
        TokenRows& rows = decoded[position];
        rows.key.resize(mu.size());
        rows.value.resize(mu.size());
        codec.DecodeKey(expected.key, mu.data(), rows.key.data());
        codec.DecodeValue(expected.value, rows.value.data());
        rows = Stored(std::move(rows));
      }
    }
    const auto expected = [&](uint32_t position) {
      const auto promoted = decoded.find(position);
      return promoted != decoded.end() ? promoted->second : Original(layer, head, position);
    };
    const uint32_t size = kv_->size_tokens();
    for (uint32_t t = 0; t < g.sink_tokens(size); ++t) ExpectToken(layer, head, t, expected(t));
    uint32_t slot = g.sinks;
    for (const WindowRecord& record : windows.full()) {
      const uint32_t first = g.first_position(record.window).value;
      for (uint32_t t = 0; t < g.omega; ++t) ExpectToken(layer, head, slot++, expected(first + t));
    }
    for (uint32_t t = g.open_tokens(size); t > 0; --t)
      ExpectToken(layer, head, slot++, expected(size - t));
  }

  void AppendCodes(const HeadWindows& windows, std::vector<uint16_t>& contents) const {
    const size_t codes = windows.attended().size() + windows.retained().size();
    for (size_t slot = 0; slot < codes * windows.omega(); ++slot) {
      const CodedToken token = GetToken(windows.format(), windows.pages()[slot / kCodePageTokens],
                                        slot % kCodePageTokens);
      for (const CodedRow* row : {&token.key, &token.value}) {
        contents.push_back(row->scale);
        contents.insert(contents.end(), row->codes.begin(),
                        row->codes.begin() + config_.shape.head_dim);
      }
    }
  }

  TieredConfig config_;
  std::unique_ptr<WindowCodec> codec_;
  ShufflingPolicy shuffling_policy_{31};
  ScorePolicy score_policy_;
  std::unique_ptr<CacheAttention> attention_;
  uint64_t mapped_before_, attention_bytes_ = 0;
  CachePlan plan_;
  std::optional<SequenceKv> kv_;
  Random random_{20261130};
  std::vector<std::vector<double>> full_masses_, code_masses_;  // of the layer, by KV head
  double largest_f16_error_ = 0.0, largest_code_error_ = 0.0, largest_mass_error_ = 0.0;
};

}  // namespace qevict::test
