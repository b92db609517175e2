// Real models that tests use when they are in the folder of `qevict models`.
#pragma once

#include <filesystem>
#include <string>

#include "engine/model_catalog.h"

namespace qevict::test {

constexpr char kSmolLm2[] = "SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr char kQwenHalfB[] = "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf";

// Empty when the model is not there; then skip with QEVICT_NEED_MODEL.
inline std::string RealModel(const std::string& file_name) {
  const std::filesystem::path path = std::filesystem::path(ModelFolder()) / file_name;
  return std::filesystem::exists(path) ? path.string() : "";
}

}  // namespace qevict::test

#define QEVICT_NEED_MODEL(path)                                                        \
  do {                                                                                 \
    if ((path).empty()) GTEST_SKIP() << "the model is not there: qevict models fetch"; \
  } while (false)
