#include "model/ggml_log.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "ggml.h"
#include "llama.h"

namespace qevict {
namespace {

struct LastLine {
  ggml_log_level level = GGML_LOG_LEVEL_NONE;
  std::string text;
};
thread_local LastLine last_line;

void Keep(ggml_log_level level, const char* text, void*) {
  static const bool pass_through = [] {
    const char* value = std::getenv("QEVICT_GGML_LOG");
    return value != nullptr && std::string_view(value) == "1";
  }();
  if (pass_through) std::fputs(text, stderr);
  // libllama warns about many harmless things after an error; only another error may replace one.
  const bool worth_keeping =
      level == GGML_LOG_LEVEL_ERROR ||
      (level == GGML_LOG_LEVEL_WARN && last_line.level != GGML_LOG_LEVEL_ERROR);
  if (!worth_keeping) return;
  std::string_view line(text);
  while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.remove_suffix(1);
  if (line.empty()) return;
  last_line = {level, std::string(line)};
}

}  // namespace

void RouteGgmlLog() {
  static std::once_flag once;
  std::call_once(once, [] { llama_log_set(Keep, nullptr); });  // sets ggml's callback too
}

std::string TakeGgmlError() {
  std::string text = std::move(last_line.text);
  last_line = {};
  return text;
}

}  // namespace qevict
