#include "bench/e2e/comparison.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/check.h"

namespace qevict::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Threads spin behind their last work, libgomp's for some 20 ms, OpenBLAS's for longer; the next
// turn begins when they sleep: when no CPU time is counted during a further check.
constexpr auto kPause = std::chrono::milliseconds(50), kCheck = std::chrono::milliseconds(20);
constexpr int kMostChecks = 25;
constexpr double kShortestIdleTurn = 0.2;  // seconds; CPU times are counted in ticks of 10 ms

struct Player {
  std::string name;
  Worker worker;
  std::optional<double> idle_cpu_share;
};

class Match {
 public:
  Match(const ComparisonConfig& config, const TurnFn& on_turn, const CancelFn& cancel)
      : config_(config), on_turn_(on_turn), cancel_(cancel) {
    const uint32_t players = config.peer.empty() ? 1 : 2;
    turns_ = players * (1 + PrefillRounds() + config.repeat);
  }

  Status Load();
  Status Play(Comparison& comparison);
  Result<Comparison> Finish(Comparison comparison);

 private:
  uint32_t PrefillRounds() const {
    return config_.context > kMostRepeatedPrefill ? 1 : config_.repeat;
  }
  void Announce(const std::string& player, const char* what) {
    if (on_turn_) on_turn_(++turn_, turns_, player + ": " + what);
  }
  Status LoadPlayer(const std::string& name, const std::vector<std::string>& command,
                    uint32_t chunk_tokens);
  Status Prefill(Rounds& rounds, bool& same_next_token);
  Status Decode(Rounds& rounds);
  void WaitUntilAllSleep() const;
  // What the others used of the CPU during a turn.
  template <typename Turn>
  auto WatchOthers(Player& player, Turn turn);

  const ComparisonConfig& config_;
  const TurnFn& on_turn_;
  const CancelFn& cancel_;
  std::vector<Player> players_;  // ours, then the peer
  uint32_t turn_ = 0, turns_ = 0;
};

Status Match::Load() {
  QEVICT_RETURN_IF_ERROR(
      LoadPlayer(std::string(kOurs), config_.worker_command, config_.chunk_tokens));
  if (config_.peer.empty()) return {};
  return LoadPlayer(config_.peer, config_.peer_command, config_.peer_chunk_tokens);
}

Status Match::LoadPlayer(const std::string& name, const std::vector<std::string>& command,
                         uint32_t chunk_tokens) {
  Announce(name, "loading");
  auto worker = Worker::Start({.command = command,
                               .engine = name,
                               .settings = {.model_path = config_.model_path,
                                            .threads = config_.threads,
                                            .capacity_tokens = config_.CapacityTokens(),
                                            .chunk_tokens = chunk_tokens,
                                            .cache = config_.cache},
                               .tokens = config_.tokens,
                               .prompt_tokens = config_.prompt_tokens()},
                              cancel_);
  if (!worker) return tl::unexpected(worker.error());
  players_.push_back({name, std::move(*worker), std::nullopt});
  return {};
}

void Match::WaitUntilAllSleep() const {
  const auto used_seconds = [this] {
    double seconds = 0.0;
    for (const Player& player : players_) seconds += player.worker.CpuSeconds();
    return seconds;
  };
  std::this_thread::sleep_for(kPause);
  for (int i = 0; i < kMostChecks; ++i) {
    const double before = used_seconds();
    std::this_thread::sleep_for(kCheck);
    if (used_seconds() == before) return;
  }
}

template <typename Turn>
auto Match::WatchOthers(Player& player, Turn turn) {
  WaitUntilAllSleep();
  std::vector<double> before;
  for (const Player& other : players_) before.push_back(other.worker.CpuSeconds());
  const auto start = Clock::now();
  auto outcome = turn(player.worker);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  for (size_t i = 0; i < players_.size() && seconds >= kShortestIdleTurn; ++i) {
    if (&players_[i] == &player) continue;
    const double share = (players_[i].worker.CpuSeconds() - before[i]) / seconds;
    players_[i].idle_cpu_share = std::max(players_[i].idle_cpu_share.value_or(0.0), share);
  }
  return outcome;
}

Status Match::Prefill(Rounds& rounds, bool& same_next_token) {
  std::vector<Token> next;
  for (Player& player : players_) {
    Announce(player.name, "prefill");
    QEVICT_ASSIGN_OR_RETURN(const Worker::Prefilled prefilled,
                            WatchOthers(player, [](Worker& worker) { return worker.Prefill(); }));
    std::vector<double>& rates = next.empty() ? rounds.ours : rounds.peer;
    rates.push_back(double(config_.prompt_tokens()) / prefilled.seconds);
    next.push_back(prefilled.next);
  }
  same_next_token = same_next_token && next.front() == next.back();
  return {};
}

Status Match::Decode(Rounds& rounds) {
  for (Player& player : players_) {
    Announce(player.name, "decode");
    QEVICT_ASSIGN_OR_RETURN(const double seconds, WatchOthers(player, [&](Worker& worker) {
                              return worker.Decode(config_.decode_tokens, config_.decode_end);
                            }));
    std::vector<double>& rates = &player == &players_.front() ? rounds.ours : rounds.peer;
    rates.push_back(double(config_.decode_tokens) / seconds);
  }
  return {};
}

Status Match::Play(Comparison& comparison) {
  for (uint32_t round = 0; round < PrefillRounds(); ++round) {
    QEVICT_RETURN_IF_ERROR(Prefill(comparison.prefill, comparison.same_next_token));
  }
  for (uint32_t round = 0; round < config_.repeat; ++round)
    QEVICT_RETURN_IF_ERROR(Decode(comparison.decode));
  return {};
}

Result<Comparison> Match::Finish(Comparison comparison) {
  for (Player& player : players_) {
    EngineReport report{.worker = {}, .idle_cpu_share = player.idle_cpu_share};
    QEVICT_ASSIGN_OR_RETURN(report.worker, player.worker.Report());
    if (&player == &players_.front()) {
      comparison.ours = std::move(report);
    } else {
      comparison.peer = std::move(report);
    }
  }
  return comparison;
}

}  // namespace

uint32_t ComparisonConfig::CapacityTokens() const {
  const uint32_t block = kSettleTokens + decode_tokens;
  return prompt_tokens() + (decode_end == DecodeEnd::kRewind ? block : repeat * block);
}

std::vector<double> Rounds::Ratios() const {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(ours.size(), peer.size()); ++i)
    ratios.push_back(ours[i] / peer[i]);
  return ratios;
}

double Median(std::vector<double> values) {
  QEVICT_CHECK(!values.empty());
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2.0;
}

Result<Comparison> RunComparison(const ComparisonConfig& config, const TurnFn& on_turn,
                                 const CancelFn& cancel) {
  Match match(config, on_turn, cancel);
  Comparison comparison;
  QEVICT_RETURN_IF_ERROR(match.Load());
  QEVICT_RETURN_IF_ERROR(match.Play(comparison));
  return match.Finish(std::move(comparison));
}

}  // namespace qevict::bench
