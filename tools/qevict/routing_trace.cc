#include "tools/qevict/routing_trace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "cache/sequence_kv.h"
#include "tools/qevict/cache_facts.h"

namespace qevict::cli {
namespace {

constexpr int kFormat = 1;

// Keys in the order in which they were set; a score is printed as the float that it is.
using TraceJson = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool,
                                       int64_t, uint64_t, float>;

std::string Text(const TraceJson& json) {
  return json.dump(-1, ' ', false, TraceJson::error_handler_t::replace);
}

const char* TierName(Tier tier) {
  switch (tier) {
    case Tier::kFull:
      return "full";
    case Tier::kQuantized:
      return "quantized";
    case Tier::kEvicted:
      return "evicted";
  }
  return "";
}

TraceJson RunLine(const TraceFacts& facts, const SequenceKv& kv) {
  const KvShape& shape = kv.shape();
  TraceJson line = {{"type", "run"},
                    {"format", kFormat},
                    {"model", facts.model},
                    {"layers", shape.layers},
                    {"routed_layers", RoutedLayers(shape)},
                    {"kv_heads", shape.kv_heads},
                    {"group", shape.group},
                    {"head_dim", shape.head_dim}};
  line.update(TraceJson(CacheFacts(facts.cache)));
  line.update({{"code_bits", kv.plan().code_bits()},
               {"attention", facts.attention == AttentionKind::kFused ? "fused" : "reference"},
               {"capacity_tokens", kv.capacity_tokens()},
               {"limit_bytes", kv.budget().limit_bytes()},
               {"move", {"window", "from", "to", "score"}}});
  return line;
}

constexpr char kToStandardOutput[] =
    "--trace cannot be standard output, which is the answer's; name a file";

// A device that both may have is none: /dev/null, not a terminal.
bool IsStandardOutput(int fd) {
  struct stat file, output;
  return fstat(fd, &file) == 0 && fstat(STDOUT_FILENO, &output) == 0 &&
         file.st_dev == output.st_dev && file.st_ino == output.st_ino &&
         (!S_ISCHR(file.st_mode) || isatty(fd) != 0);
}

// Whether both name one file that is there.
bool SameFile(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error) && !error;
}

}  // namespace

void AddTraceFlag(CLI::App& command, std::optional<std::string>& path) {
  command
      .add_option("--trace", path, "Write what routing moves to this file, a line of JSON an event")
      ->type_name("FILE")
      ->group("Cache");
}

Result<std::unique_ptr<RoutingTrace>> RoutingTrace::Open(const std::optional<std::string>& path,
                                                         const TraceFacts& facts,
                                                         const std::vector<std::string>& inputs) {
  const auto refuse = [](std::string message) {
    return Fail(ErrorCode::kInvalidArgument, std::move(message));
  };
  if (!path) return nullptr;
  if (path->empty()) return refuse("--trace is empty; name a file to write to");
  if (*path == "-") return refuse(kToStandardOutput);
  if (facts.cache.policy == CachePolicy::kFull) {
    return refuse("--trace has nothing to write: --policy full routes nothing; drop one of them");
  }
  if (!facts.cache.tiered()) {
    return refuse("--trace has nothing to write: without --kv-budget nothing is routed; give one");
  }
  for (const std::string& input : inputs) {
    if (SameFile(*path, input)) {
      return refuse(
          fmt::format("--trace would overwrite '{}', which is read; name another file", input));
    }
  }
  const int fd = open(path->c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0 && errno == EINTR)  // while a pipe waits for its reader
    return Fail(ErrorCode::kCancelled, "stopped before --trace could be opened");
  if (fd < 0) {
    return Fail(ErrorCode::kIo, fmt::format("--trace '{}' cannot be written: {}; name another file",
                                            *path, std::strerror(errno)));
  }
  if (IsStandardOutput(fd)) {
    close(fd);
    return refuse(kToStandardOutput);
  }
  signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of the file
  return std::unique_ptr<RoutingTrace>(new RoutingTrace(*path, facts, fd));
}

RoutingTrace::RoutingTrace(std::string path, TraceFacts facts, int fd)
    : path_(std::move(path)), facts_(std::move(facts)), fd_(fd) {}

RoutingTrace::~RoutingTrace() {
  if (fd_ >= 0) close(fd_);
}

template <typename Note>
void RoutingTrace::Noting(const Note& note) noexcept {
  if (out_of_memory_ || error_number_ != 0) return;
  try {
    note();
  } catch (...) {  // a string or JSON without room
    out_of_memory_ = true;
  }
}

void RoutingTrace::WriteLine(std::string line) {
  line += '\n';
  for (std::string_view text = line; !text.empty() && error_number_ == 0;) {
    const ssize_t written = write(fd_, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(size_t(written));
    } else if (errno != EINTR) {
      error_number_ = errno;
    }
  }
}

uint32_t RoutingTrace::OnSequence(const SequenceKv& kv) noexcept {
  if (++sequences_ == 1) {
    // Not before: a run that is refused leaves an earlier trace alone. What is no plain file (a
    // pipe, a device) cannot be cut and need not be.
    [[maybe_unused]] const int cut = ftruncate(fd_, 0);
    Noting([&] { WriteLine(Text(RunLine(facts_, kv))); });
  }
  return sequences_;
}

void RoutingTrace::OnMoves(LayerId layer, KvHeadId kv_head,
                           std::span<const WindowMove> moves) noexcept {
  Noting([&] {
    TraceJson list = TraceJson::array();
    for (const WindowMove& move : moves) {
      list.push_back({move.window.value, TierName(move.from), TierName(move.to), move.score});
      (move.to == Tier::kEvicted ? pending_.evictions
       : move.to == Tier::kFull  ? pending_.promotions
                                 : pending_.demotions) += 1;
    }
    if (!heads_.empty()) heads_ += ',';
    heads_ += Text({{"layer", layer.value}, {"kv_head", kv_head.value}, {"moves", list}});
  });
}

void RoutingTrace::OnReview(const SequenceReview& review) noexcept {
  Noting([&] {
    ++totals_.events;
    totals_.demotions += pending_.demotions;
    totals_.promotions += pending_.promotions;
    totals_.evictions += pending_.evictions;
    totals_.encoded += review.encoded;
    totals_.seconds += review.seconds;
    std::string line = Text({{"type", "event"},
                             {"event", totals_.events},
                             {"sequence", review.sequence},
                             {"position", review.position_tokens},
                             {"phase", review.batch_tokens == 1 ? "decode" : "prompt"},
                             {"history_windows", review.history_windows},
                             {"windows",
                              {{"full", review.windows.full},
                               {"quantized", review.windows.quantized},
                               {"evicted", review.windows.evicted}}},
                             {"encoded", review.encoded},
                             {"used_bytes", review.used_bytes},
                             {"limit_bytes", review.limit_bytes},
                             {"seconds", float(review.seconds)}});
    line.back() = ',';  // the object goes on
    line += "\"heads\":[" + heads_ + "]}";
    WriteLine(std::move(line));
  });
  OnAbandon();
}

void RoutingTrace::OnAbandon() noexcept {
  heads_.clear();
  pending_ = {};
}

void RoutingTrace::OnClear(uint32_t sequence) noexcept {
  Noting([&] { WriteLine(Text({{"type", "clear"}, {"sequence", sequence}})); });
}

Status RoutingTrace::Finish() {
  Noting([&] {
    WriteLine(Text({{"type", "end"},
                    {"sequences", sequences_},
                    {"events", totals_.events},
                    {"demotions", totals_.demotions},
                    {"promotions", totals_.promotions},
                    {"evictions", totals_.evictions},
                    {"encoded", totals_.encoded},
                    {"seconds", float(totals_.seconds)}}));
  });
  // Some file systems say only now that there was no room.
  if (close(std::exchange(fd_, -1)) != 0 && error_number_ == 0) error_number_ = errno;
  if (error_number_ != 0) {
    return Fail(
        ErrorCode::kIo,
        fmt::format("the trace is incomplete: --trace '{}' cannot be written: {}; check the "
                    "disk or pipe behind it",
                    path_, std::strerror(error_number_)));
  }
  if (out_of_memory_) {
    return Fail(ErrorCode::kOutOfMemory,
                "the trace is incomplete: there was no memory for a line of --trace; lower --ctx");
  }
  return {};
}

}  // namespace qevict::cli
