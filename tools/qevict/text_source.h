// Text from files, standard input and flags, checked before anything else happens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "qevict/status.h"

namespace qevict::cli {

// "-" is standard input. A byte order mark is dropped. Errors: kNotFound, kIo, kInvalidArgument
// (not UTF-8, with the byte offset; too long).
[[nodiscard]] Result<std::string> ReadTextFile(const std::string& path);

// `where` names the text in the message: "-p", for example.
Status CheckUtf8(std::string_view text, std::string_view where);

// The texts of `files` in their order, then `question`, with an empty line between them.
[[nodiscard]] Result<std::string> ReadDocuments(const std::vector<std::string>& files,
                                                std::string_view question);

}  // namespace qevict::cli
