#include "engine/codec_fit.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/calibration_text.h"
#include "engine/codec_tables.h"
#include "engine/table_recorder.h"
#include "model/rope_angles.h"

namespace qevict {
namespace {

// Tables are measured like this, whatever a sequence uses: they depend on none of it.
constexpr CodeFormat kTableFormat{0, 3, 2};
constexpr uint32_t kTableSinks = 4, kTableBiasTokens = 32;

Result<std::vector<HeadTables>> MeasureTables(const ModelToFit& model, const RopePairs& rope,
                                              const ProgressFn& progress, const CancelFn& cancel) {
  Engine& engine = model.engine;
  const Hyperparameters& h = engine.hyperparameters();
  QEVICT_ASSIGN_OR_RETURN(
      std::vector<Token> text,
      engine.tokenizer().Encode(kCalibrationText, SpecialText::kPlain, Bos::kModelDefault));
  text.resize(std::min<size_t>(text.size(), h.context_train));
  CodeFormat format = kTableFormat;
  format.head_dim = h.head_dim;
  TableRecorder recorder(h.kv_shape(), format, rope, kTableSinks, kTableBiasTokens);
  QEVICT_ASSIGN_OR_RETURN(const std::unique_ptr<Sequence> sequence,
                          engine.NewFullSequence(uint32_t(text.size())));
  model.attention.Watch(&recorder);
  Status status;
  for (size_t begin = 0; begin < text.size() && status; begin += model.chunk_tokens) {
    const size_t count = std::min<size_t>(model.chunk_tokens, text.size() - begin);
    recorder.BeginBatch(uint32_t(begin), uint32_t(count));
    BatchItem item{.sequence = sequence.get(),
                   .tokens = std::span(text).subspan(begin, count),
                   .logits = LogitRows::kNone};
    status = engine.Run({&item, 1}, cancel);
    if (status && progress) progress(uint32_t(begin + count), uint32_t(text.size()));
  }
  model.attention.Watch(nullptr);
  if (!status) return tl::unexpected(status.error());
  return recorder.Build();
}

// From their file, or else measured and written to it.
Result<std::vector<HeadTables>> FittedTables(const ModelToFit& model,
                                             const WindowCodec::Config& codec,
                                             const std::string& folder, const ProgressFn& progress,
                                             const CancelFn& cancel) {
  if (folder.empty()) return MeasureTables(model, codec.rope, progress, cancel);
  const TablesShape shape{codec.layers, codec.kv_heads, codec.rope.head_dim};
  const std::string fingerprint = ModelFingerprint(model.file);
  const std::string path = TablesPath(folder, fingerprint);
  QEVICT_ASSIGN_OR_RETURN(auto stored, ReadTables(path, fingerprint, shape));
  if (stored) return std::move(*stored);
  QEVICT_RETURN_IF_ERROR(MakeTablesFolder(folder));
  QEVICT_ASSIGN_OR_RETURN(std::vector<HeadTables> tables,
                          MeasureTables(model, codec.rope, progress, cancel));
  QEVICT_RETURN_IF_ERROR(WriteTables(path, fingerprint, shape, tables));
  return tables;
}

}  // namespace

Result<std::unique_ptr<WindowCodec>> FitCodec(const ModelToFit& model, const CacheConfig& cache,
                                              const ProgressFn& progress, const CancelFn& cancel) {
  const Hyperparameters& h = model.engine.hyperparameters();
  const uint32_t key_bits = cache.least_key_bits(), value_bits = cache.least_value_bits();
  WindowCodec::Config config{
      .formats = {{h.head_dim, key_bits, value_bits}},
      .rope = {.head_dim = h.head_dim,
               .layout = h.rope_layout == RopeLayout::kHalves ? RopePairs::Layout::kHalves
                                                              : RopePairs::Layout::kInterleaved,
               .angles = RopeAngles(model.file, h)},
      .layers = h.layers,
      .kv_heads = h.kv_heads,
      .heads = {},
      .sinks = cache.geometry.sinks,
      .omega = cache.geometry.omega};
  if (cache.raises_bits()) {
    config.formats.push_back({h.head_dim, 4, value_bits});
    config.formats.push_back({h.head_dim, key_bits, 4});
    config.formats.push_back({h.head_dim, 4, 4});
  }
  QEVICT_ASSIGN_OR_RETURN(config.heads,
                          FittedTables(model, config, cache.tables_folder, progress, cancel));
  return WindowCodec::Create(std::move(config));
}

}  // namespace qevict
