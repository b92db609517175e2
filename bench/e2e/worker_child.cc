#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "bench/e2e/cache_json.h"
#include "bench/e2e/worker.h"

namespace qevict::bench {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr size_t kLoadTokens = 64;  // enough to touch every weight

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The peak that the kernel has seen, file pages included.
uint64_t PeakRssBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "VmHWM: %llu kB", &kib) == 1) return uint64_t{kib} * 1024;
  }
  return 0;
}

class Server {
 public:
  static Result<Server> Create(LoadFn load, const Json& config) {
    if (const int protocol = config.at("protocol"); protocol != kWorkerProtocol) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("this peer was built for version {} of the benchmark's protocol, and "
                              "qevict speaks {}; build it again",
                              kWorkerProtocol, protocol));
    }
    Server server;
    server.tokens_ = config.at("tokens").get<std::vector<Token>>();
    server.prompt_tokens_ = config.at("prompt_tokens");
    QEVICT_ASSIGN_OR_RETURN(const CacheConfig cache, ReadCacheJson(config.at("cache")));
    QEVICT_ASSIGN_OR_RETURN(server.engine_, load(config.at("engine").get<std::string>(),
                                                 {.model_path = config.at("model"),
                                                  .threads = config.at("threads"),
                                                  .capacity_tokens = config.at("capacity"),
                                                  .chunk_tokens = config.at("chunk"),
                                                  .cache = cache}));
    QEVICT_RETURN_IF_ERROR(
        server.engine_->Append(server.Tokens(0, std::min(kLoadTokens, server.tokens_.size()))));
    return server;
  }

  Result<Json> Serve(const Json& request) {
    const std::string what = request.at("do");
    if (what == "prefill") return Prefill();
    if (what == "decode") {
      return Decode(request.at("tokens"),
                    request.at("rewind") ? DecodeEnd::kRewind : DecodeEnd::kStay);
    }
    if (what == "report") return Report();
    return Fail(ErrorCode::kInternal, fmt::format("the worker does not know '{}'", what));
  }

 private:
  std::span<const Token> Tokens(size_t begin, size_t count) const {
    return std::span(tokens_).subspan(begin, count);
  }

  Result<Json> Prefill() {
    QEVICT_RETURN_IF_ERROR(engine_->Truncate(0));
    const auto start = Clock::now();
    QEVICT_RETURN_IF_ERROR(engine_->Append(Tokens(0, prompt_tokens_)));
    const double seconds = SecondsSince(start);
    position_ = prompt_tokens_;
    return Json{{"seconds", seconds}, {"next", engine_->NextToken()}};
  }

  Result<Json> Decode(size_t count, DecodeEnd end) {
    const bool rewind = end == DecodeEnd::kRewind;
    Clock::time_point start;
    for (size_t i = 0; i < kSettleTokens + count; ++i) {
      if (i == kSettleTokens) start = Clock::now();
      // The text that follows matters to no engine's speed; every engine gets the same.
      const size_t token = rewind ? prompt_tokens_ + i : position_ + i;
      QEVICT_RETURN_IF_ERROR(engine_->Append(Tokens(token % tokens_.size(), 1)));
    }
    const double seconds = SecondsSince(start);
    position_ += kSettleTokens + count;
    if (rewind) {
      QEVICT_RETURN_IF_ERROR(engine_->Truncate(uint32_t(prompt_tokens_)));
      position_ = prompt_tokens_;
    }
    return Json{{"seconds", seconds}};
  }

  Result<Json> Report() {
    const uint64_t peak_rss_bytes = PeakRssBytes();
    QEVICT_ASSIGN_OR_RETURN(const uint64_t kv_bytes, engine_->KvBytes());
    return Json{{"peak_rss_bytes", peak_rss_bytes},
                {"kv_bytes", kv_bytes},
                {"settings", engine_->Settings()}};
  }

  std::unique_ptr<BenchEngine> engine_;
  std::vector<Token> tokens_;
  size_t prompt_tokens_ = 0, position_ = 0;
};

void Reply(const Json& reply) {
  // Not fmt::print, which throws when the parent has gone.
  const std::string line = reply.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
}

void ReplyError(const Error& error) {
  Reply({{"error", {{"code", int(error.code)}, {"message", error.message}}}});
}

}  // namespace

Status RunWorker(LoadFn load) try {
  std::string line;
  if (!std::getline(std::cin, line))
    return Fail(ErrorCode::kInternal, "a benchmark worker is started by `qevict bench` alone");
  Result<Server> server = Server::Create(load, Json::parse(line));
  if (server) {
    Reply({{"ready", true}});
  } else {
    ReplyError(server.error());
    return {};
  }
  std::fflush(stdout);
  while (std::getline(std::cin, line)) {
    const Result<Json> reply = server->Serve(Json::parse(line));
    reply ? Reply(*reply) : ReplyError(reply.error());
    std::fflush(stdout);
  }
  return {};
} catch (const Json::exception& error) {
  return Fail(
      ErrorCode::kInternal,
      fmt::format("a benchmark worker is started by `qevict bench` alone ({})", error.what()));
}

}  // namespace qevict::bench
