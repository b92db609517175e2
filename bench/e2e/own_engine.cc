#include "bench/e2e/own_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/engine.h"

namespace qevict::bench {
namespace {

class OwnEngine final : public BenchEngine {
 public:
  OwnEngine(std::unique_ptr<Engine> engine, std::unique_ptr<Sequence> sequence, uint32_t chunk)
      : engine_(std::move(engine)), sequence_(std::move(sequence)), chunk_tokens_(chunk) {}

  Status Append(std::span<const Token> tokens) override {
    return engine_->Prefill(*sequence_, tokens, &logits_);
  }
  Status Truncate(uint32_t size_tokens) override { return sequence_->Truncate(size_tokens); }
  Token NextToken() const override {
    return Token(std::ranges::max_element(logits_) - logits_.begin());
  }
  Result<uint64_t> KvBytes() override { return sequence_->kv_usage().peak_bytes; }
  std::string Settings() const override {
    return fmt::format("{} kernels, f16 KV, chunk {}", engine_->isa_name(), chunk_tokens_);
  }

 private:
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Sequence> sequence_;  // after the engine: it must go first
  uint32_t chunk_tokens_;
  std::vector<float> logits_;
};

}  // namespace

Result<std::unique_ptr<BenchEngine>> LoadOwnEngine(const BenchEngineConfig& config) {
  EngineConfig engine_config;
  engine_config.model_path = config.model_path;
  engine_config.threads = config.threads;
  if (config.chunk_tokens != 0) engine_config.prefill_chunk = config.chunk_tokens;
  QEVICT_ASSIGN_OR_RETURN(auto engine, Engine::Load(engine_config));
  QEVICT_ASSIGN_OR_RETURN(auto sequence, engine->NewSequence(config.capacity_tokens));
  return std::make_unique<OwnEngine>(std::move(engine), std::move(sequence),
                                     engine_config.prefill_chunk);
}

}  // namespace qevict::bench
