#include "model/tokenizer.h"

#include <fmt/format.h>
#include <llama.h>

#include <exception>
#include <new>
#include <stdexcept>

#include "core/utf8.h"
#include "model/ggml_log.h"
#include "model/text_parts.h"
#include "model/validate_tokenizer.h"

namespace qevict {
namespace {

// Appends. Throws what libllama throws.
void Tokenize(const llama_vocab* vocab, std::string_view text, SpecialText special,
              std::vector<Token>& tokens) {
  const size_t before = tokens.size();
  tokens.resize(before + text.size() / 2 + 16);  // rarely more than a token for two bytes
  const auto tokenize = [&] {
    return llama_tokenize(vocab, text.data(), int32_t(text.size()), tokens.data() + before,
                          int32_t(tokens.size() - before), /*add_special=*/false,
                          /*parse_special=*/special == SpecialText::kParse);
  };
  int32_t count = tokenize();
  if (count < 0) {
    tokens.resize(before + size_t(-int64_t{count}));
    count = tokenize();
  }
  if (count < 0) throw std::length_error("too many tokens");
  tokens.resize(before + size_t(count));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::Load(const GgufFile& file) {
  RouteGgmlLog();
  // libllama asserts on some damaged files, which would end the process.
  QEVICT_RETURN_IF_ERROR(ValidateTokenizer(file));
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  TakeGgmlError();  // of an earlier call
  llama_model* model = nullptr;
  std::string reason;
  try {
    model = llama_model_load_from_file(file.path().c_str(), params);
    if (model == nullptr) reason = TakeGgmlError();
  } catch (const std::bad_alloc&) {
    return Fail(
        ErrorCode::kOutOfMemory,
        fmt::format("not enough memory for the vocabulary of '{}'; free some", file.path()));
  } catch (const std::exception& error) {
    reason = error.what();
  }
  if (model == nullptr) {
    return Fail(ErrorCode::kBadFile,
                fmt::format("the vocabulary in '{}' cannot be read ({}); fetch the file again",
                            file.path(), reason.empty() ? "no reason given" : reason));
  }
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer(model));
  if (llama_vocab_type(tokenizer->vocab_) == LLAMA_VOCAB_TYPE_NONE) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("'{}' holds no vocabulary; use a file made with one", file.path()));
  }
  QEVICT_ASSIGN_OR_RETURN(const std::vector<Token> probe,
                          tokenizer->Encode("x", SpecialText::kPlain, Bos::kNever));
  std::string text;
  for (const Token token : probe) text += tokenizer->Piece(token);
  tokenizer->prefixes_space_ = text.starts_with(' ');
  return tokenizer;
}

Tokenizer::Tokenizer(llama_model* model)
    : model_(model),
      vocab_(llama_model_get_vocab(model)),
      vocab_size_(size_t(llama_vocab_n_tokens(vocab_))) {}

Tokenizer::~Tokenizer() { llama_model_free(model_); }

Result<std::vector<Token>> Tokenizer::Encode(std::string_view text, SpecialText special,
                                             Bos bos) const {
  if (const auto offset = FirstInvalidUtf8(text)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the text is not valid UTF-8 at byte {}; convert it to UTF-8 first", *offset));
  }
  if (text.size() > kMaxTextBytes) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("the text has {} bytes, at most {} can be read at once", text.size(),
                            kMaxTextBytes));
  }
  std::vector<Token> tokens;
  // BOS is ours to add: libllama would also append EOS where a vocabulary asks for it, and a prompt
  // that is to be continued must not end with one.
  const Token bos_token = llama_vocab_bos(vocab_);
  if (bos == Bos::kModelDefault && llama_vocab_get_add_bos(vocab_) &&
      bos_token != LLAMA_TOKEN_NULL) {
    tokens.push_back(bos_token);
  }
  const bool may_be_cut = llama_vocab_type(vocab_) == LLAMA_VOCAB_TYPE_BPE;
  try {
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = may_be_cut ? PartEnd(text, begin) : text.size();
      Tokenize(vocab_, text.substr(begin, end - begin), special, tokens);
      begin = end;
    }
  } catch (const std::bad_alloc&) {
    return Fail(ErrorCode::kOutOfMemory,
                "not enough memory to split the text into tokens; give a shorter one");
  } catch (const std::exception& error) {
    return Fail(ErrorCode::kInternal,
                fmt::format("libllama could not split the text into tokens: {}", error.what()));
  }
  return tokens;
}

std::string Tokenizer::Piece(Token token) const {
  if (token < 0 || size_t(token) >= vocab_size_) return "";
  std::string piece(64, '\0');
  const auto write = [&] {
    return llama_token_to_piece(vocab_, token, piece.data(), int32_t(piece.size()), /*lstrip=*/0,
                                /*special=*/false);
  };
  int32_t bytes = write();
  if (bytes < 0) {
    piece.resize(size_t(-bytes));
    bytes = write();
  }
  piece.resize(size_t(bytes > 0 ? bytes : 0));
  return piece;
}

std::string Tokenizer::Decode(std::span<const Token> tokens) const {
  std::string text;
  for (const Token token : tokens) text += Piece(token);
  if (prefixes_space_ && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

bool Tokenizer::IsEndOfGeneration(Token token) const {
  return token >= 0 && size_t(token) < vocab_size_ && llama_vocab_is_eog(vocab_, token);
}

}  // namespace qevict
