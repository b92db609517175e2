// Real models that tests use when they are there: $QEVICT_CACHE/models or ~/.cache/qevict/models.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace qevict::test {

constexpr char kSmolLm2[] = "SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr char kQwenHalfB[] = "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf";

// Empty when the model is not there; then skip with QEVICT_NEED_MODEL.
inline std::string RealModel(const std::string& file_name) {
  const char* cache = std::getenv("QEVICT_CACHE");
  const char* home = std::getenv("HOME");
  const std::filesystem::path folder =
      cache != nullptr
          ? std::filesystem::path(cache) / "models"
          : std::filesystem::path(home == nullptr ? "" : home) / ".cache/qevict/models";
  const std::filesystem::path path = folder / file_name;
  return std::filesystem::exists(path) ? path.string() : "";
}

}  // namespace qevict::test

#define QEVICT_NEED_MODEL(path)                                                        \
  do {                                                                                 \
    if ((path).empty()) GTEST_SKIP() << "the model is not there: qevict models fetch"; \
  } while (false)
