#include "engine/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "tests/support/small_file_system.h"
#include "tests/support/temporary_folder.h"

namespace qevict {
namespace {

using test::TemporaryFolder;
using ::testing::HasSubstr;

std::span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string Content(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(AtomicFileTest, HasItsNameOnlyAfterCommit) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "weights";
  {
    AtomicFile file = AtomicFile::Create(path.string()).value();
    ASSERT_TRUE(file.Write(Bytes("one ")).ok());
    ASSERT_TRUE(file.Write(Bytes("two")).ok());
    EXPECT_FALSE(std::filesystem::exists(path));
    ASSERT_TRUE(file.Commit().ok());
    EXPECT_EQ(Content(path), "one two");
  }
  EXPECT_EQ(Content(path), "one two") << "the destructor removes only what was not committed";
}

TEST(AtomicFileTest, AnAbandonedFileLeavesNothingAndTheOldOneAsItWas) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "weights";
  std::ofstream(path) << "old";
  {
    AtomicFile file = AtomicFile::Create(path.string()).value();
    ASSERT_TRUE(file.Write(Bytes("new")).ok());
  }
  EXPECT_EQ(Content(path), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(AtomicFileTest, OfWritersAtTheSameTimeEachPutsAWholeFileInPlace) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "weights";
  std::atomic<int> failures = 0, torn = 0;
  const auto write = [&](char letter) {
    for (int round = 0; round < 50; ++round) {
      auto file = AtomicFile::Create(path.string());
      if (!file) {
        ++failures;
        continue;
      }
      const std::string piece(1000 + round, letter);
      for (int i = 0; i < 4; ++i) failures += !file->Write(Bytes(piece)).ok();
      failures += round % 5 != 0 && !file->Commit().ok();  // else it is abandoned
      const std::string content = Content(path);
      torn += content.find_first_not_of(content.substr(0, 1)) != content.npos ||
              content.size() % 4 != 0;
    }
  };
  std::thread a(write, 'a'), b(write, 'b'), c(write, 'c');
  a.join();
  b.join();
  c.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(AtomicFileTest, AFolderThatIsNotThereIsAnError) {
  const auto file = AtomicFile::Create("/does/not/exist/weights");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::kIo);
}

TEST(AtomicFileTest, AFullDiskIsNamedAndLeavesNothing) {
  const TemporaryFolder folder;
  const test::SmallFileSystem small(folder.path(), 64);
  if (!small.error().empty()) GTEST_SKIP() << "cannot mount a small file system: " << small.error();
  {
    AtomicFile file = AtomicFile::Create((folder.path() / "weights").string()).value();
    const std::vector<uint8_t> chunk(48 * 1024, 7);
    ASSERT_TRUE(file.Write(chunk).ok());
    const Status full = file.Write(chunk);
    ASSERT_FALSE(full.ok());
    EXPECT_EQ(full.error().code, ErrorCode::kIo);
    EXPECT_THAT(full.error().message, HasSubstr("disk is full"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace qevict
