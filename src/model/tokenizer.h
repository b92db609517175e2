// The vocabulary of a GGUF file: text <-> tokens, through libllama.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf_file.h"
#include "model/token.h"
#include "qevict/status.h"

struct llama_model;
struct llama_vocab;

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
  // Loads only the vocabulary: SentencePiece or byte-level BPE, the kinds of the model families
  // that qevict runs. `file` may be closed afterwards. Errors: kBadFile, kUnsupported (another
  // kind), kInternal (libllama cannot use the vocabulary that it has loaded).
  [[nodiscard]] static Result<std::unique_ptr<Tokenizer>> Load(const GgufFile& file);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Never adds an end-of-sequence token. Tokens that the vocabulary declares as user-defined (not
  // control) are found under kPlain too: to the model they are ordinary words.
  // Errors: kInvalidArgument (the text is not valid UTF-8, and the message names the byte offset,
  // or is longer than kMaxTextBytes), kInternal (libllama failed).
  [[nodiscard]] Result<std::vector<Token>> Encode(std::string_view text, SpecialText special,
                                                  Bos bos) const;
  static constexpr size_t kMaxTextBytes = size_t{1} << 30;

  // The bytes of a token; may be a part of a UTF-8 character. Control tokens, and ids outside the
  // vocabulary, give an empty string.
  std::string Piece(Token token) const;
  // All pieces, without the space that SentencePiece vocabularies put before a text, so that
  // Decode(Encode(text, kPlain, kNever)) == text.
  std::string Decode(std::span<const Token> tokens) const;
  bool IsEndOfGeneration(Token token) const;  // EOS, EOT and other tokens that end an answer
  size_t vocab_size() const { return vocab_size_; }

  const llama_model* llama() const { return model_; }  // for sampler and chat template
  const llama_vocab* vocab() const { return vocab_; }

 private:
  explicit Tokenizer(llama_model* model);
  llama_model* model_;
  const llama_vocab* vocab_;
  size_t vocab_size_;
  bool prefixes_space_ = false;  // Encode("x") begins with a space
};

}  // namespace qevict
