// Peers of the benchmark that are programs of their own: where they are looked for, and how they
// end in a report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "bench/e2e/llama_peer.h"
#include "support/tiny_model.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/program.h"

namespace qevict::cli {
namespace {

using test::ProgramRun;
using test::TinyModelConfig;
using test::TinyModelFile;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// A cache folder in which programs take the places of peers.
class BenchPeersTest : public ::testing::Test {
 protected:
  void MakePeer(const std::string& name, const std::string& script) {
    const std::filesystem::path folder = cache_.path() / "peers";
    std::filesystem::create_directories(folder);
    std::ofstream(folder / name) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(folder / name, std::filesystem::perms::owner_all);
  }
  // The script that OpenVINO's environment runs, with a stand-in for OpenVINO.
  void MakeOpenvino(const std::string& variables) {
    MakePeer("openvino", "PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=" QEVICT_SOURCE_DIR
                         "/tests/bench/fake_openvino " +
                             variables +
                             " exec python3 " QEVICT_SOURCE_DIR "/bench/peers/openvino_peer.py");
  }
  ProgramRun Bench(const std::string& peer) {
    const TinyModelFile model(TinyModelConfig{.context = 1024});
    return test::RunShell("QEVICT_CACHE=" + cache_.path().string() + " \"$QEVICT\" bench -m " +
                          model.path() + " --context 96 --decode 4 --repeat 2 --threads 1 --json " +
                          "--against " + peer);
  }

  test::TemporaryFolder cache_;
};

std::string ErrorOf(const ProgramRun& run) { return run.json().at("error").at("message"); }

TEST_F(BenchPeersTest, APeerThatIsNotThereNamesTheScriptThatMakesIt) {
  const std::string peers = cache_.path().string() + "/peers/";
  for (const auto& [peer, script] :
       {std::pair("openvino", "bench/peers/setup-openvino.sh"),
        std::pair("llama.cpp-blas", "bench/peers/setup-llama-blas.sh")}) {
    const ProgramRun run = Bench(peer);
    EXPECT_EQ(run.exit_code, 3) << peer;
    EXPECT_THAT(ErrorOf(run), AllOf(HasSubstr(peers + peer), HasSubstr(script)));
    EXPECT_TRUE(std::filesystem::exists(std::string(QEVICT_SOURCE_DIR "/") + script)) << script;
  }
}

TEST_F(BenchPeersTest, WhatOpenvinoMeasuresIsThePeersSideOfTheReport) {
  MakeOpenvino("");
  const ProgramRun run = Bench("openvino");
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  const Json json = run.json();
  EXPECT_EQ(json.at("against"), "openvino");
  // The stand-in takes 0.1 s for each token of a prompt, and k seconds for step k.
  EXPECT_NEAR(json.at("prefill").at("peer").get<double>(), 10.0, 1e-9);
  EXPECT_NEAR(json.at("decode").at("peer").get<double>(), 4.0 / (3 + 4 + 5 + 6), 1e-9);
  EXPECT_EQ(json.at("decode").at("rounds"), 2);
  EXPECT_TRUE(json.at("kv_bytes").at("peer").is_null());
  EXPECT_GT(json.at("kv_bytes").at("ours").get<uint64_t>(), 0u);
  EXPECT_GT(json.at("peak_rss_bytes").at("peer").get<uint64_t>(), 0u);
  EXPECT_THAT(json.at("settings").at("peer").get<std::string>(), HasSubstr("OpenVINO GenAI 1.2.3"));
}

TEST_F(BenchPeersTest, AFileThatOpenvinoCannotReadIsUnsupported) {
  MakeOpenvino("FAKE_OPENVINO_ERROR='[load_gguf] gguf_tensor_to_f16 failed'");
  const ProgramRun run = Bench("openvino");
  EXPECT_EQ(run.exit_code, 4);
  EXPECT_THAT(ErrorOf(run), AllOf(HasSubstr("openvino: OpenVINO GenAI 1.2.3 cannot load"),
                                  HasSubstr("gguf_tensor_to_f16 failed")));
}

TEST(BenchWorkerTest, AnotherVersionOfTheProtocolIsRefused) {
  const ProgramRun run = test::RunShell("echo '{\"protocol\": 1000}' | \"$QEVICT\" bench-worker");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(ErrorOf(run), HasSubstr("qevict speaks 1000; build it again"));
}

TEST(LlamaPeerTest, BlasNeedsALibraryThatHasIt) {
  const auto peer = bench::LoadLlamaPeer({.model_path = "any"}, bench::LlamaProducts::kBlas);
  ASSERT_FALSE(peer);
  EXPECT_EQ(peer.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(peer.error().message, HasSubstr("bench/peers/setup-llama-blas.sh"));
}

TEST_F(BenchPeersTest, APeerThatEndsIsQuoted) {
  MakePeer("llama.cpp-blas", "echo 'libopenblas.so.0 is not here' >&2; exit 127");
  const ProgramRun run = Bench("llama.cpp-blas");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(ErrorOf(run), HasSubstr("ended with 127: libopenblas.so.0 is not here"));
}

}  // namespace
}  // namespace qevict::cli
