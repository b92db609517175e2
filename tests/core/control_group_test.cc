#include "core/control_group.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "tests/support/temporary_folder.h"

namespace qevict {
namespace {

constexpr uint64_t kUnlimited = UINT64_MAX;

// A tree of groups as Linux shows it, and a process in the group `path` of it.
class ControlGroupTest : public ::testing::Test {
 protected:
  void Place(const std::string& path) {
    std::ofstream(paths_.of_process) << "1:name=systemd:/elsewhere\n0::" << path << "\n";
  }
  void Write(const std::string& group, const std::string& file, const std::string& text) {
    std::filesystem::create_directories(paths_.tree + group);
    std::ofstream(paths_.tree + group + "/" + file) << text;
  }
  void Limit(const std::string& group, const std::string& limit, const std::string& current) {
    Write(group, "memory.max", limit + "\n");
    Write(group, "memory.current", current + "\n");
  }

  const test::TemporaryFolder folder_;
  const ControlGroupPaths paths_ = {folder_.path() / "cgroup", folder_.path() / "tree"};
};

TEST_F(ControlGroupTest, WithoutGroupsNothingIsLimited) {
  EXPECT_EQ(ControlGroupFreeBytes(paths_), kUnlimited);
  EXPECT_TRUE(std::isinf(ControlGroupCpus(paths_)));
  Place("/");
  Limit("/", "max", "1000");
  Write("/", "cpu.max", "max 100000\n");
  EXPECT_EQ(ControlGroupFreeBytes(paths_), kUnlimited);
  EXPECT_TRUE(std::isinf(ControlGroupCpus(paths_)));
}

TEST_F(ControlGroupTest, TheTightestGroupUpToTheRootDecides) {
  Place("/user/session/job");
  Limit("/user/session/job", "1000", "100");
  EXPECT_EQ(ControlGroupFreeBytes(paths_), 900u);
  Limit("/user/session", "max", "5000");
  Limit("/user", "6000", "5500");
  EXPECT_EQ(ControlGroupFreeBytes(paths_), 500u);
  Limit("/", "300", "100");
  EXPECT_EQ(ControlGroupFreeBytes(paths_), 200u);
  Limit("/user/other", "1", "1");
  EXPECT_EQ(ControlGroupFreeBytes(paths_), 200u) << "the group of other processes";
}

TEST_F(ControlGroupTest, AContainerThatSeesItsGroupAsTheRootIsLimitedByIt) {
  Place("/docker/0123456789ab");
  Limit("/", "1000", "400");
  EXPECT_EQ(ControlGroupFreeBytes(paths_), 600u);
}

TEST_F(ControlGroupTest, ThePageCacheOfAGroupIsNotTaken) {
  Place("/job");
  Limit("/job", "1000", "990");
  Write("/job", "memory.stat", "anon 100\nfile 890\ninactive_file 500\nactive_file 300\nshmem 1\n");
  EXPECT_EQ(ControlGroupFreeBytes(paths_), 1000u - (990u - 800u));
  // The counters are not read at one moment, so the cache may seem larger than all that is used.
  Write("/job", "memory.stat", "inactive_file 5000\n");
  EXPECT_EQ(ControlGroupFreeBytes(paths_), 1000u);
}

TEST_F(ControlGroupTest, AGroupBeyondItsLimitHasNothingLeft) {
  Place("/job");
  Limit("/job", "1000", "1200");
  EXPECT_EQ(ControlGroupFreeBytes(paths_), 0u);
}

TEST_F(ControlGroupTest, TheLeastCpuQuotaDecides) {
  Place("/a/b");
  Write("/a/b", "cpu.max", "max 100000\n");
  Write("/a", "cpu.max", "150000 100000\n");
  EXPECT_DOUBLE_EQ(ControlGroupCpus(paths_), 1.5);
  Write("/", "cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(ControlGroupCpus(paths_), 0.5);
}

}  // namespace
}  // namespace qevict
