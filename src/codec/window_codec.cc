#include "codec/window_codec.h"

#include <algorithm>
#include <string>

#include "core/check.h"

namespace qevict {
namespace {

// A bias block holds whole windows, about this many tokens: blocks of 8 to 32 tokens code equally
// well, and longer ones cost fewer products per step.
constexpr uint32_t kBiasTokens = 32;

uint32_t WindowsPerBlock(uint32_t omega) { return std::max(1u, kBiasTokens / omega); }

}  // namespace

WindowCodec::WindowCodec(Config config)
    : config_(std::move(config)),
      rotation_(config_.formats.front().head_dim),
      turns_(config_.rope, Position(config_.sinks), WindowsPerBlock(config_.omega) * config_.omega),
      windows_per_block_(WindowsPerBlock(config_.omega)) {}

Result<std::unique_ptr<WindowCodec>> WindowCodec::Create(Config config) {
  if (config.heads.size() != size_t{config.layers} * config.kv_heads) {
    return Fail(ErrorCode::kInvalidArgument,
                "there are tables of " + std::to_string(config.heads.size()) +
                    " KV heads for a model of " +
                    std::to_string(size_t{config.layers} * config.kv_heads));
  }
  QEVICT_CHECK(!config.formats.empty());
  for (const HeadTables& tables : config.heads) {
    QEVICT_RETURN_IF_ERROR(tables.Validate(config.formats.front().head_dim));
  }
  std::unique_ptr<WindowCodec> codec(new WindowCodec(std::move(config)));
  for (const CodeFormat& format : codec->config_.formats) {
    for (const HeadTables& tables : codec->config_.heads) {
      codec->heads_.emplace_back(format, tables, &codec->rotation_);
    }
  }
  codec->config_.heads.clear();
  return codec;
}

const HeadCodec& WindowCodec::head(LayerId layer, KvHeadId head, const CodeFormat& format) const {
  const auto found = std::ranges::find(config_.formats, format);
  QEVICT_CHECK(found != config_.formats.end());
  const size_t heads = size_t{config_.layers} * config_.kv_heads;
  return heads_[size_t(found - config_.formats.begin()) * heads + HeadIndex(layer, head)];
}

void WindowCodec::MeanOf(LayerId layer, KvHeadId head, WindowId window, float* mu) const {
  Turn(turns_.pairs(), turns_.row(BiasBlockOf(window)), tables(layer, head).mean.data(), mu);
}

Status WindowCodec::Grow(uint32_t tokens) {
  if (tokens <= config_.sinks) return {};
  return turns_.Grow(turns_.BlockOf(Position(tokens - 1)) + 1);
}

}  // namespace qevict
