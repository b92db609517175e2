#include "bench/e2e/worker.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/e2e/cache_json.h"
#include "model/thread_wait.h"

namespace qevict::bench {
namespace {

using Json = nlohmann::json;

// The name of an open file that needs none.
std::string PathOf(const Descriptor& file) { return fmt::format("/proc/self/fd/{}", file.get()); }

std::string LastLine(const Descriptor& log) {
  std::ifstream file(PathOf(log));
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

// `read` takes values out of the reply and throws when they are not there.
template <typename T, typename Read>
Result<T> Parsed(const std::string& reply, Read read) try {
  return read(Json::parse(reply));
} catch (const Json::exception& error) {
  return Fail(ErrorCode::kInternal, fmt::format("a worker replied '{}' ({})", reply, error.what()));
}

Status WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0)
      return Fail(ErrorCode::kIo,
                  fmt::format("a worker does not listen ({})", std::strerror(errno)));
    text.remove_prefix(size_t(written));
  }
  return {};
}

// A peer's threads wait as they do in its own program, whatever this one has chosen for itself.
std::vector<std::string> EnvironmentOf(const std::string& engine) {
  const char* spins = std::getenv(kSpinVariable);
  const bool own = engine == kOurs || engine == "full";
  if (own || spins == nullptr || std::string_view(spins) != kBoundedSpins) return {};
  return {fmt::format("{}={}", kSpinVariable, kDefaultSpins)};
}

}  // namespace

Result<Worker> Worker::Start(const WorkerConfig& config, const CancelFn& cancel) {
  // A worker that died shows in what it replies, not by ending this process.
  signal(SIGPIPE, SIG_IGN);
  // Its log is a file without a name: whatever ends this process, nothing is left behind.
  Descriptor log(memfd_create("qevict-bench-worker-log", MFD_CLOEXEC));
  if (!log) {
    return Fail(ErrorCode::kIo,
                fmt::format("cannot make a worker's log ({})", std::strerror(errno)));
  }
  QEVICT_ASSIGN_OR_RETURN(ChildProcess child,
                          ChildProcess::Start({.command = config.command,
                                               .environment = EnvironmentOf(config.engine),
                                               .streams = ChildConfig::Streams::kPiped,
                                               .log_path = PathOf(log)}));
  Worker worker(std::move(child), std::move(log));
  worker.engine_ = config.engine;
  worker.cancel_ = cancel;
  const Json request = {{"protocol", kWorkerProtocol},
                        {"engine", config.engine},
                        {"model", config.settings.model_path},
                        {"threads", config.settings.threads},
                        {"capacity", config.settings.capacity_tokens},
                        {"chunk", config.settings.chunk_tokens},
                        {"cache", CacheJson(config.settings.cache)},
                        {"tokens", config.tokens},
                        {"prompt_tokens", config.prompt_tokens}};
  QEVICT_RETURN_IF_ERROR(worker.Call(request.dump()));
  return worker;
}

Result<Worker::Prefilled> Worker::Prefill() {
  QEVICT_ASSIGN_OR_RETURN(const std::string reply, Call(R"({"do": "prefill"})"));
  return Parsed<Prefilled>(reply, [](const Json& json) {
    return Prefilled{.seconds = json.at("seconds"), .next = json.at("next")};
  });
}

Result<double> Worker::Decode(uint32_t tokens, DecodeEnd end) {
  const Json request = {
      {"do", "decode"}, {"tokens", tokens}, {"rewind", end == DecodeEnd::kRewind}};
  QEVICT_ASSIGN_OR_RETURN(const std::string reply, Call(request.dump()));
  return Parsed<double>(reply, [](const Json& json) { return json.at("seconds").get<double>(); });
}

Result<WorkerReport> Worker::Report() {
  QEVICT_ASSIGN_OR_RETURN(const std::string reply, Call(R"({"do": "report"})"));
  return Parsed<WorkerReport>(reply, [](const Json& json) {
    const Json& kv_bytes = json.at("kv_bytes");
    return WorkerReport{
        .kv_bytes = kv_bytes.is_null() ? std::nullopt : std::optional(kv_bytes.get<uint64_t>()),
        .peak_rss_bytes = json.at("peak_rss_bytes"),
        .settings = json.at("settings")};
  });
}

double Worker::CpuSeconds() const {
  std::ifstream file(fmt::format("/proc/{}/stat", child_.pid()));
  std::string text;
  std::getline(file, text);
  // utime and stime are fields 14 and 15; field 2 may hold spaces but ends at the last ')'.
  unsigned long long user = 0, system = 0;
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return 0.0;
  std::sscanf(text.c_str() + end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu",
              &user, &system);
  return double(user + system) / double(sysconf(_SC_CLK_TCK));
}

Result<std::string> Worker::Call(const std::string& request) {
  if (!WriteAll(child_.stdin_fd(), request + "\n").ok()) return tl::unexpected(Ended());
  QEVICT_ASSIGN_OR_RETURN(std::string reply, ReadLine());
  const Json json = Json::parse(reply, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return Fail(ErrorCode::kInternal, fmt::format("{} replied '{}'", engine_, reply));
  if (!json.contains("error")) return reply;
  QEVICT_ASSIGN_OR_RETURN(const Error error, Parsed<Error>(reply, [](const Json& object) {
                            const int code = object.at("error").at("code");
                            const bool known = code >= 0 && code <= int(ErrorCode::kInternal);
                            return Error{known ? ErrorCode(code) : ErrorCode::kInternal,
                                         object.at("error").at("message")};
                          }));
  return Fail(error.code, fmt::format("{}: {}", engine_, error.message));
}

Result<std::string> Worker::ReadLine() {
  while (true) {
    if (const size_t end = unread_.find('\n'); end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    if (cancel_ && cancel_()) return Fail(ErrorCode::kCancelled, "the benchmark was stopped");
    pollfd ready = {.fd = child_.stdout_fd(), .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, /*timeout_ms=*/200) <= 0) continue;
    char buffer[4096];
    const ssize_t bytes = read(child_.stdout_fd(), buffer, sizeof(buffer));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return tl::unexpected(Ended());
    unread_.append(buffer, size_t(bytes));
  }
}

Error Worker::Ended() {
  const int code = child_.Wait().exit_code;
  if (cancel_ && cancel_()) return {ErrorCode::kCancelled, "the benchmark was stopped"};
  if (code == 128 + SIGKILL) {
    return {
        ErrorCode::kOutOfMemory,
        fmt::format(
            "the process of {} was killed, most likely for lack of memory; use a smaller --context",
            engine_)};
  }
  return {ErrorCode::kInternal,
          fmt::format("the process of {} ended with {}: {}", engine_, code, LastLine(log_))};
}

}  // namespace qevict::bench
