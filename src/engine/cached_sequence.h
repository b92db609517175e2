// A sequence of an engine: its cache, and the tokens that are in it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache_plan.h"
#include "engine/engine.h"

namespace qevict {

class CachedSequence final : public Sequence {
 public:
  explicit CachedSequence(SequenceKv kv) : kv_(std::move(kv)) {}
  uint32_t size_tokens() const override { return kv_.size_tokens(); }
  uint32_t capacity_tokens() const override { return kv_.capacity_tokens(); }
  std::span<const Token> tokens() const override { return tokens_; }
  KvUsage kv_usage() const override {
    const ByteBudget& budget = kv_.budget();
    const CachePlan& plan = kv_.plan();
    return {.limit_bytes = budget.limit_bytes(),
            .used_bytes = budget.used_bytes(),
            .peak_bytes = budget.peak_bytes(),
            .full_f16_bytes = FullCacheBytes(kv_.shape(), kv_.capacity_tokens()),
            .kv_type = plan.kv_type,
            .full_bytes = plan.full_bytes,
            .quantized_bytes = budget.used_bytes() - plan.full_bytes - plan.ledger_bytes,
            .ledger_bytes = plan.ledger_bytes,
            .code_bits = plan.code_bits(),
            .staging_peak_bytes = kv_.staging_peak_bytes(),
            .tiers = kv_.stats()};
  }
  Status Truncate(uint32_t size_tokens) override {
    if (size_tokens > kv_.size_tokens()) {
      return Fail(ErrorCode::kInvalidArgument,
                  "a sequence of " + std::to_string(kv_.size_tokens()) +
                      " tokens cannot be cut to " + std::to_string(size_tokens));
    }
    QEVICT_RETURN_IF_ERROR(kv_.Truncate(size_tokens));
    tokens_.resize(size_tokens);
    return {};
  }

  SequenceKv& kv() override { return kv_; }
  // Room for `tokens` more, so that Commit and EndPrompt cannot fail.
  void Reserve(size_t tokens) {
    if (tokens_.capacity() - tokens_.size() < tokens) tokens_.reserve(2 * tokens_.size() + tokens);
  }
  void EndPrompt(std::span<const Token> tokens) noexcept {
    tokens_.assign(tokens.begin(), tokens.end());
    kv_.EndPrompt();
  }
  void Commit(std::span<const Token> tokens) noexcept {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    kv_.Commit();
  }

 private:
  SequenceKv kv_;
  std::vector<Token> tokens_;
};

}  // namespace qevict
