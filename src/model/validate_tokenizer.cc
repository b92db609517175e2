#include "model/validate_tokenizer.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "model/gguf_scan.h"

namespace qevict {
namespace {

tl::unexpected<Error> Bad(const GgufFile& file, std::string_view what) {
  return Fail(
      ErrorCode::kBadFile,
      fmt::format("the tokenizer in '{}' is damaged: {}; fetch the file again", file.path(), what));
}

Status CheckTokensDiffer(const GgufFile& file, const std::vector<std::string_view>& tokens) {
  std::unordered_set<std::string> seen;
  seen.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    // libllama gives an empty token this name, so it can collide with one that is spelt so.
    const bool fresh =
        seen.insert(tokens[i].empty() ? fmt::format("[EMPTY_{}]", i) : std::string(tokens[i]))
            .second;
    if (!fresh)
      return Bad(file, fmt::format("token {} ('{}') occurs twice", i, Printable(tokens[i])));
  }
  return {};
}

Status CheckLengths(const GgufFile& file, size_t tokens) {
  for (const char* key : {"tokenizer.ggml.scores", "tokenizer.ggml.token_type"}) {
    QEVICT_ASSIGN_OR_RETURN(const auto length, file.FindArrayLength(key));
    if (length && *length < tokens)
      return Bad(file, fmt::format("'{}' has {} values for {} tokens", key, *length, tokens));
  }
  return {};
}

// libllama ignores the others (padding, unknown, ...) when they are out of range, and files with
// such values are about.
Status CheckSpecialIds(const GgufFile& file, size_t tokens) {
  for (const char* name : {"bos", "eos", "eot", "eom"}) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    QEVICT_ASSIGN_OR_RETURN(const auto id, file.FindU32(key));
    if (id && *id >= tokens)
      return Bad(file, fmt::format("'{}' is {} but there are {} tokens", key, *id, tokens));
  }
  return {};
}

// The byte that a token such as "<0x0A>" spells; upper-case digits only, as libllama looks them up.
std::optional<unsigned> NamedByte(std::string_view token) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const size_t high = kDigits.find(token[3]), low = kDigits.find(token[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
  return static_cast<unsigned>(high * 16 + low);
}

// Without them libllama throws in the middle of a text.
Status CheckByteTokens(const GgufFile& file, const std::vector<std::string_view>& tokens) {
  bool spelt[256] = {true};  // no text holds a zero byte as a token of its own
  for (std::string_view token : tokens) {
    if (token.size() == 1) spelt[static_cast<unsigned char>(token[0])] = true;
    if (const std::optional<unsigned> byte = NamedByte(token)) spelt[*byte] = true;
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (!spelt[byte]) return Bad(file, fmt::format("it has no token for the byte 0x{:02X}", byte));
  }
  return {};
}

Status CheckMerges(const GgufFile& file) {
  QEVICT_ASSIGN_OR_RETURN(const auto merges, file.FindStringArray("tokenizer.ggml.merges"));
  if (!merges) return Bad(file, "'tokenizer.ggml.merges' is missing");
  for (size_t i = 0; i < merges->size(); ++i) {
    const std::string_view merge = (*merges)[i];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return Bad(file, fmt::format("merge {} ('{}') is not two tokens with a space between", i,
                                   Printable(merge)));
    }
  }
  return {};
}

// Code points of `token` that stand for no byte in the alphabet of byte-level BPE (printable ASCII,
// U+00A1 .. U+0143).
uint64_t ForeignCodePoints(std::string_view token) {
  uint64_t foreign = 0;
  for (size_t i = 0; i < token.size(); ++i) {
    const auto byte = static_cast<unsigned char>(token[i]);
    const auto next = i + 1 < token.size() ? static_cast<unsigned char>(token[i + 1]) : 0u;
    const unsigned code_point = (byte & 0x1fu) << 6 | (next & 0x3fu);
    if (byte > 0x20 && byte < 0x7f) continue;
    if ((byte & 0xe0) == 0xc0 && (next & 0xc0) == 0x80 && code_point >= 0xa1 &&
        code_point <= 0x143) {
      ++i;
      continue;
    }
    ++foreign;
  }
  return foreign;
}

// libllama writes the whole token again for each of its foreign code points: a token of 1 MB could
// grow to 1 TB.
Status CheckDecodedBytes(const GgufFile& file, const std::vector<std::string_view>& tokens) {
  constexpr uint64_t kMaxBytes = 64u << 20;
  uint64_t bytes = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const uint64_t foreign = ForeignCodePoints(tokens[i]);
    if (foreign == 0) continue;
    bytes += foreign * (tokens[i].size() + 32);
    if (bytes > kMaxBytes) return Bad(file, fmt::format("token {} is not byte-level BPE", i));
  }
  return {};
}

}  // namespace

Status ValidateTokenizer(const GgufFile& file) {
  QEVICT_ASSIGN_OR_RETURN(const auto model, file.FindString("tokenizer.ggml.model"));
  if (!model) return Bad(file, "'tokenizer.ggml.model' is missing");
  const bool sentence_piece = *model == "llama";
  if (!sentence_piece && *model != "gpt2") {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("the tokenizer '{}' of '{}' is not supported; supported are gpt2, llama",
                    Printable(*model), file.path()));
  }
  QEVICT_ASSIGN_OR_RETURN(const auto tokens, file.FindStringArray("tokenizer.ggml.tokens"));
  if (!tokens || tokens->empty()) return Bad(file, "'tokenizer.ggml.tokens' is missing or empty");
  QEVICT_RETURN_IF_ERROR(CheckTokensDiffer(file, *tokens));
  QEVICT_RETURN_IF_ERROR(CheckLengths(file, tokens->size()));
  QEVICT_RETURN_IF_ERROR(CheckSpecialIds(file, tokens->size()));
  if (sentence_piece) return CheckByteTokens(file, *tokens);
  QEVICT_RETURN_IF_ERROR(CheckMerges(file));
  return CheckDecodedBytes(file, *tokens);
}

}  // namespace qevict
