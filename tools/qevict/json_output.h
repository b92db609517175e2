// JSON on stdout, keys in the order in which they were set.
#pragma once

#include <nlohmann/json.hpp>

#include "qevict/status.h"
#include "tools/qevict/exit_status.h"
#include "tools/qevict/print.h"

namespace qevict::cli {

using Json = nlohmann::ordered_json;

inline Json ErrorJson(const Error& error) {
  return {{"code", ErrorCodeName(error.code)}, {"message", error.message}};
}

// Bytes that are not valid UTF-8 (a damaged model name, a path) become U+FFFD: a reader can always
// parse the output.
inline void PrintJson(const Json& json) {
  Print(stdout, "{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace qevict::cli
