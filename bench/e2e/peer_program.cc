#include "bench/e2e/peer_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "engine/model_catalog.h"

namespace qevict::bench {
namespace {

struct PeerProgram {
  std::string_view peer, setup;
};
constexpr PeerProgram kPrograms[] = {
    {.peer = "openvino", .setup = "bench/peers/setup-openvino.sh"},
    {.peer = "llama.cpp-blas", .setup = "bench/peers/setup-llama-blas.sh"}};

}  // namespace

Result<std::vector<std::string>> PeerCommand(std::string_view peer,
                                             const std::vector<std::string>& own) {
  const auto* program = std::ranges::find(kPrograms, peer, &PeerProgram::peer);
  if (program == std::end(kPrograms)) return own;
  const std::string path = fmt::format("{}/{}", PeersFolder(), peer);
  if (access(path.c_str(), X_OK) == 0) return std::vector<std::string>{path};
  return Fail(ErrorCode::kNotFound,
              fmt::format("there is no program {}, which --against {} needs; run {} of qevict's "
                          "source, which makes it",
                          path, peer, program->setup));
}

}  // namespace qevict::bench
