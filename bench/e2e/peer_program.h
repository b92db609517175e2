// Peers that are programs of their own, so that qevict needs nothing of what they need. A script of
// bench/peers makes each one in the cache folder; it serves the requests of a worker (worker.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "qevict/status.h"

namespace qevict::bench {

// What runs the worker of `peer`, one of kPeers or empty: `own`, or a program of its own.
// Error kNotFound: it has not been made; names the script that does.
[[nodiscard]] Result<std::vector<std::string>> PeerCommand(std::string_view peer,
                                                           const std::vector<std::string>& own);

}  // namespace qevict::bench
