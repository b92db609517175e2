#include "bench/e2e/own_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/engine.h"

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
    const std::string kv =
        cache_.tiered()
            ? fmt::format("policy {}, K{}/V{}, limit {} bytes, {} ms of routing, staging {} bytes",
                          CachePolicyName(cache_.policy), cache_.key_bits, cache_.value_bits,
                          sequence_->kv_usage().limit_bytes,
                          int64_t(sequence_->kv_usage().tiers.routing_seconds * 1e3),
                          sequence_->kv_usage().staging_peak_bytes)
            : "f16 KV";
    return fmt::format("{} kernels, {}, chunk {}", engine_->isa_name(), kv, chunk_tokens_);
  }

 private:
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
