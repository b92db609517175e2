#include <gguf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/tiny_model.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/program.h"

namespace qevict::cli {
namespace {

using test::ProgramRun;
using test::RunQevict;
using test::TemporaryFolder;
using test::TinyModelConfig;
using test::TinyModelFile;
using ::testing::HasSubstr;

TEST(InfoTest, DescribesAModelThatRuns) {
  const TinyModelConfig config = {.family = Family::kQwen2,
                                  .layers = 3,
                                  .kv_heads = 2,
                                  .group = 4,
                                  .head_dim = 64,
                                  .context = 8192};
  const TinyModelFile file(config);
  const ProgramRun run = RunQevict({"info", file.path(), "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto json = run.json();
  EXPECT_EQ(json.at("architecture"), "qwen2");
  EXPECT_EQ(json.at("supported"), true);
  EXPECT_EQ(json.at("file_bytes"), std::filesystem::file_size(file.path()));
  EXPECT_EQ(json.at("shape").at("layers"), 3);
  EXPECT_EQ(json.at("shape").at("heads"), 8);
  EXPECT_EQ(json.at("shape").at("kv_heads"), 2);
  EXPECT_EQ(json.at("shape").at("head_dim"), 64);
  EXPECT_EQ(json.at("shape").at("context"), 8192);
  // Two bytes each for keys and values: 3 layers x 2 heads x 64 channels x 4 bytes.
  const uint64_t bytes_per_token = 3 * 2 * 64 * 4;
  EXPECT_EQ(json.at("kv").at("bytes_per_token"), bytes_per_token);
  const auto contexts = json.at("kv").at("contexts");
  ASSERT_EQ(contexts.size(), 2u) << "4096, and the model's own 8192";
  EXPECT_EQ(contexts[0].at("tokens"), 4096);
  EXPECT_EQ(contexts[0].at("bytes"), 4096 * bytes_per_token);
  EXPECT_EQ(contexts[1].at("bytes"), 8192 * bytes_per_token);
  uint64_t parameters = 0;
  for (const auto& type : json.at("tensor_types"))
    parameters += type.at("parameters").get<uint64_t>();
  EXPECT_EQ(json.at("parameters"), parameters);
  EXPECT_GT(parameters, 0u);

  const ProgramRun text = RunQevict({"info", file.path()});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("supported      yes"));
  EXPECT_THAT(text.out, HasSubstr("1.5 KiB per token"));
}

TEST(InfoTest, SlidingWindowLayersKeepTheirWindowAndOneStepOfThePrompt) {
  const TinyModelConfig config = {
      .family = Family::kGemma3, .layers = 6, .kv_heads = 1, .head_dim = 64, .swa_window = 32};
  const TinyModelFile file(config);
  const auto json = RunQevict({"info", file.path(), "--json"}).json();
  const uint64_t swa_layers = json.at("shape").at("swa").at("layers"), layer_bytes = 64 * 4;
  ASSERT_GT(swa_layers, 0u);
  ASSERT_LT(swa_layers, 6u);
  EXPECT_EQ(json.at("kv").at("bytes_per_token"), (6 - swa_layers) * layer_bytes);
  EXPECT_EQ(json.at("kv").at("swa_bytes"), swa_layers * (32 + 512) * layer_bytes);
  const auto context = json.at("kv").at("contexts").back();
  const uint64_t tokens = context.at("tokens"), bytes = context.at("bytes");
  EXPECT_EQ(bytes, (6 - swa_layers) * layer_bytes * tokens + swa_layers * (32 + 512) * layer_bytes);

  // What a run takes, which is whole pages.
  const auto run = RunQevict({"run", "-m", file.path(), "-p", "x", "-n", "1", "--ctx",
                              std::to_string(tokens), "--json"})
                       .json();
  EXPECT_GE(run.at("kv").at("limit_bytes"), bytes);
  EXPECT_LT(run.at("kv").at("limit_bytes"), bytes + 65536);
}

TEST(InfoTest, WhatAFileSaysCannotSpeakToTheTerminal) {
  TinyModelConfig config;
  config.edit_metadata = [](gguf_context* metadata) {
    gguf_set_val_str(metadata, "general.name", "a\x1b[2Jb\nsupported      no");
    gguf_set_val_str(metadata, "general.license", "c\x1b]0;title\x07");
  };
  const TinyModelFile file(config);
  const ProgramRun text = RunQevict({"info", file.path()});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("name           a?[2Jb?supported      no\n"));
  EXPECT_THAT(text.out, HasSubstr("licence        c?]0;title?\n"));
  EXPECT_EQ(text.out.find('\x1b'), std::string::npos);
  // JSON escapes them and keeps the text.
  EXPECT_EQ(RunQevict({"info", file.path(), "--json"}).json().at("name"),
            "a\x1b[2Jb\nsupported      no");
}

// A copy of a llama model that says it is of another architecture.
std::string WriteMamba(const TemporaryFolder& folder) {
  const TinyModelFile model(TinyModelConfig{});
  std::ifstream in(model.path(), std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  bytes.replace(bytes.find("llama", bytes.find("general.architecture")), 5, "mamba");
  const std::string path = folder.path() / "mamba.gguf";
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(InfoTest, AnUnsupportedModelIsDescribedAndExitsWithFour) {
  const TemporaryFolder folder;
  const std::string path = WriteMamba(folder);
  const ProgramRun run = RunQevict({"info", path, "--json"});
  EXPECT_EQ(run.exit_code, 4);
  EXPECT_EQ(run.json().at("supported"), false);
  EXPECT_THAT(run.json().at("reason").get<std::string>(), HasSubstr("mamba"));
  EXPECT_GT(run.json().at("parameters"), 0);

  const ProgramRun text = RunQevict({"info", path});
  EXPECT_EQ(text.exit_code, 4);
  EXPECT_THAT(text.out, HasSubstr("supported      no: "));
}

TEST(InfoTest, ADamagedFileIsOneErrorAndExitsWithThree) {
  const TinyModelFile file(TinyModelConfig{});
  const TemporaryFolder folder;
  const auto cut = folder.path() / "cut.gguf";
  std::filesystem::copy_file(file.path(), cut);
  std::filesystem::resize_file(cut, std::filesystem::file_size(cut) / 2);
  const ProgramRun run = RunQevict({"info", cut.string()});
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, HasSubstr("cut.gguf"));
}

}  // namespace
}  // namespace qevict::cli
