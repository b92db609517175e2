// The peer llama.cpp-blas: a worker of `qevict bench` whose one engine is libllama with BLAS.
#include <fmt/format.h>

#include <cstdio>

#include "bench/e2e/llama_peer.h"
#include "bench/e2e/worker.h"

int main() {
  using namespace qevict;
  const Status status =
      bench::RunWorker([](std::string_view, const bench::BenchEngineConfig& config) {
        return bench::LoadLlamaPeer(config, bench::LlamaProducts::kBlas);
      });
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.error().message);
  return 1;
}
