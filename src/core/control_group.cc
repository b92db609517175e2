#include "core/control_group.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <vector>

namespace qevict {
namespace {

namespace fs = std::filesystem;

// The group of the process first, the root of the tree last. A container often sees its own group
// as the root while the path is that of the host; such a path is not there, and the root decides.
std::vector<fs::path> Groups(const ControlGroupPaths& paths) {
  std::ifstream file(paths.of_process);
  fs::path own;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) own = fs::path(line.substr(3)).relative_path();
  }
  std::vector<fs::path> groups;
  for (; !own.empty(); own = own.parent_path()) groups.push_back(paths.tree / own);
  groups.emplace_back(paths.tree);
  return groups;
}

// nullopt: no such file, or "max", which is no limit.
std::optional<uint64_t> ReadNumber(const fs::path& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

uint64_t PageCacheBytes(const fs::path& group) {
  std::ifstream file(group / "memory.stat");
  uint64_t bytes = 0, value = 0;
  for (std::string key; file >> key >> value;) {
    if (key == "inactive_file" || key == "active_file") bytes += value;
  }
  return bytes;
}

}  // namespace

uint64_t ControlGroupFreeBytes(const ControlGroupPaths& paths) {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (const fs::path& group : Groups(paths)) {
    const auto limit = ReadNumber(group / "memory.max"),
               current = ReadNumber(group / "memory.current");
    if (!limit || !current) continue;
    const uint64_t used = *current - std::min(*current, PageCacheBytes(group));
    least = std::min(least, *limit - std::min(*limit, used));
  }
  return least;
}

double ControlGroupCpus(const ControlGroupPaths& paths) {
  double least = std::numeric_limits<double>::infinity();
  for (const fs::path& group : Groups(paths)) {
    std::ifstream file(group / "cpu.max");
    double quota = 0.0, period = 0.0;
    if (file >> quota >> period && period > 0.0) least = std::min(least, quota / period);
  }
  return least;
}

}  // namespace qevict
