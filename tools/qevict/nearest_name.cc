#include "tools/qevict/nearest_name.h"

#include <algorithm>
#include <vector>

namespace qevict::cli {
namespace {

// Optimal string alignment distance.
size_t Edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replace});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::string NearestName(std::string_view name, std::span<const std::string> candidates) {
  std::string nearest;
  // A third of the letters may be wrong: "--theads" finds "--threads", "--foo" finds nothing.
  size_t fewest = std::max<size_t>(2, name.size() / 3 + 1);
  for (const std::string& candidate : candidates) {
    // "gemma" means gemma3-270m, though six letters are missing.
    const bool begins = name.size() >= 3 && candidate.starts_with(name);
    const size_t edits = begins ? 1 : Edits(name, candidate);
    if (edits < fewest) {
      fewest = edits;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace qevict::cli
