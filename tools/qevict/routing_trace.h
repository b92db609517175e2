// --trace FILE: every routing event as a line of JSON (docs/formats/trace.md).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/routing_observer.h"
#include "engine/engine.h"
#include "qevict/status.h"
#include "tools/qevict/cli_fwd.h"

namespace qevict::cli {

// What the first line says besides what a sequence itself knows.
struct TraceFacts {
  std::string model;
  CacheConfig cache;
  AttentionKind attention = AttentionKind::kFused;
};

void AddTraceFlag(CLI::App& command, std::optional<std::string>& path);

// Writes as the events come. Nothing that happens to the file reaches the run: Finish says it.
class RoutingTrace final : public RoutingObserver {
 public:
  // Null without a path. `inputs` are files that the run reads. Errors: kInvalidArgument (an empty
  // path, a cache that is not routed, a path of `inputs`), kIo (the file cannot be written).
  [[nodiscard]] static Result<std::unique_ptr<RoutingTrace>> Open(
      const std::optional<std::string>& path, const TraceFacts& facts,
      const std::vector<std::string>& inputs);
  RoutingTrace(const RoutingTrace&) = delete;
  ~RoutingTrace() override;  // without Finish the last line is missing

  uint32_t OnSequence(const SequenceKv& kv) noexcept override;
  void OnMoves(LayerId layer, KvHeadId kv_head,
               std::span<const WindowMove> moves) noexcept override;
  void OnReview(const SequenceReview& review) noexcept override;
  void OnAbandon() noexcept override;
  void OnClear(uint32_t sequence) noexcept override;

  // The last line. Errors: kIo (something could not be written), kOutOfMemory (an event could not
  // be noted); the file then has no last line.
  Status Finish();

 private:
  struct Totals {
    uint64_t events = 0, demotions = 0, promotions = 0, evictions = 0, encoded = 0;
    double seconds = 0.0;
  };
  RoutingTrace(std::string path, TraceFacts facts, int fd);
  // Runs `note`, which may run out of memory.
  template <typename Note>
  void Noting(const Note& note) noexcept;
  void WriteLine(std::string line);

  std::string path_;
  TraceFacts facts_;
  int fd_ = -1;
  int error_number_ = 0;
  bool out_of_memory_ = false;
  uint32_t sequences_ = 0;
  std::string heads_;  // of the event under way, as JSON
  Totals pending_;     // its moves
  Totals totals_;
};

}  // namespace qevict::cli
