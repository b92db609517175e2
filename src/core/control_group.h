// What the control groups of this process (Linux, version 2) leave it: containers and services are
// limited through them.
#pragma once

#include <cstdint>
#include <string>

namespace qevict {

// Where the system describes them.
struct ControlGroupPaths {
  std::string of_process = "/proc/self/cgroup";
  std::string tree = "/sys/fs/cgroup";
};

// The least that a group has left, of the process's own group and all above it. The page cache of
// a group counts as left, because the kernel takes it back before it kills. UINT64_MAX: no limit.
uint64_t ControlGroupFreeBytes(const ControlGroupPaths& paths = {});

// CPU time per time, the least of the same groups. Infinity: no limit.
double ControlGroupCpus(const ControlGroupPaths& paths = {});

}  // namespace qevict
