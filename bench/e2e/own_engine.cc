#include "bench/e2e/own_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/engine.h"
#include "model/build_facts.h"

namespace qevict::bench {
namespace {

class OwnEngine final : public BenchEngine {
 public:
  OwnEngine(std::unique_ptr<Engine> engine, std::unique_ptr<Sequence> sequence,
            const EngineConfig& config)
      : engine_(std::move(engine)),
        sequence_(std::move(sequence)),
        chunk_tokens_(config.prefill_chunk),
        cache_(config.cache) {}

  Status Append(std::span<const Token> tokens) override {
    return engine_->Prefill(*sequence_, tokens, &logits_);
  }
  Status Truncate(uint32_t size_tokens) override { return sequence_->Truncate(size_tokens); }
  Token NextToken() const override {
    return Token(std::ranges::max_element(logits_) - logits_.begin());
  }
  Result<uint64_t> KvBytes() override { return sequence_->kv_usage().peak_bytes; }
  std::string Settings() const override {
    std::string kv = fmt::format("{} KV", KvTypeName(cache_.kv_type));
    if (cache_.tiered()) {
      const KvUsage usage = sequence_->kv_usage();
      kv = fmt::format("policy {}, {}limit {} bytes, {} ms of routing, staging {} bytes",
                       CachePolicyName(cache_.policy), Choices(), usage.limit_bytes,
                       int64_t(usage.tiers.routing_seconds * 1e3), usage.staging_peak_bytes);
    }
    return fmt::format("{} kernels, long prompts of other weights by {}, {}, chunk {}",
                       engine_->isa_name(), GgmlBuildFacts().prompt_products, kv, chunk_tokens_);
  }

 private:
  // What the policy leaves open.
  std::string Choices() const {
    std::string choices = cache_.kv_type == KvType::kF16 ? "" : "q8, ";
    if (cache_.policy != CachePolicy::kEvict) {
      const double bits = sequence_->kv_usage().code_bits;
      if (bits != 0.0) choices += fmt::format("codes of {:.2f} bits, ", bits);
    }
    if (cache_.chooses()) {
      choices += fmt::format("scores by {}, ", ScoringName(cache_.scoring()));
    }
    return choices;
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Sequence> sequence_;  // after the engine: it must go first
  uint32_t chunk_tokens_;
  CacheConfig cache_;
  std::vector<float> logits_;
};

}  // namespace

Result<std::unique_ptr<BenchEngine>> LoadOwnEngine(const BenchEngineConfig& config) {
  EngineConfig engine_config;
  engine_config.model_path = config.model_path;
  engine_config.threads = config.threads;
  engine_config.cache = config.cache;
  if (config.chunk_tokens != 0) engine_config.prefill_chunk = config.chunk_tokens;
  QEVICT_ASSIGN_OR_RETURN(auto engine, Engine::Load(engine_config));
  QEVICT_ASSIGN_OR_RETURN(auto sequence, engine->NewSequence(config.capacity_tokens));
  return std::make_unique<OwnEngine>(std::move(engine), std::move(sequence), engine_config);
}

}  // namespace qevict::bench
