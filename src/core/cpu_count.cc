#include "core/cpu_count.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#include "core/control_group.h"

namespace qevict {
namespace {

int ReadInt(const std::string& path, int fallback) {
  std::ifstream file(path);
  int value = fallback;
  return file >> value ? value : fallback;
}

}  // namespace

uint32_t UsableCores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  std::set<std::pair<int, int>> cores;  // (package, core)
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    cores.emplace(ReadInt(topology + "physical_package_id", 0), ReadInt(topology + "core_id", cpu));
  }
  const double quota = std::max(1.0, std::ceil(ControlGroupCpus()));
  return uint32_t(std::min(quota, double(std::max<size_t>(1, cores.size()))));
}

}  // namespace qevict
