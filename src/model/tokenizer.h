// The vocabulary of a GGUF file: text <-> tokens, through libllama.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/token.h"
#include "qevict/status.h"

struct llama_model;

namespace qevict {

// How special-token text such as "<|im_start|>" in the input is read.
enum class SpecialText {
  kParse,  // as the special token: for text that a chat template produced
  kPlain,  // as ordinary characters: for text that a person supplied
};
enum class Bos {
  kModelDefault,  // prepend the beginning-of-sequence token if the model asks for it
  kNever,
};

// Thread-safe after construction: all members are const.
class Tokenizer {
 public:
  // Loads only the vocabulary. Errors: kNotFound, kBadFile.
  static Result<std::unique_ptr<Tokenizer>> Load(const std::string& gguf_path);
  ~Tokenizer();

  // Error kInvalidArgument: the text is not valid UTF-8 (the message names the byte offset).
  Result<std::vector<Token>> Encode(std::string_view text, SpecialText special, Bos bos) const;
  // The bytes of a token; may be a part of a UTF-8 character. Control tokens give an empty string.
  std::string Piece(Token token) const;
  std::string Decode(std::span<const Token> tokens) const;
  bool IsEndOfGeneration(Token token) const;  // EOS, EOT and other tokens that end an answer
  size_t vocab_size() const { return vocab_size_; }

  const llama_model* llama() const { return model_; }  // for sampler and chat template

 private:
  explicit Tokenizer(llama_model* model);
  llama_model* model_;
  size_t vocab_size_;
};

}  // namespace qevict
