// The chat template of a GGUF file (Jinja), through libllama's common library.
//
// A template writes control tokens ("<|im_end|>"); a message must not be able to. Both end up in
// one text, so before rendering, every control token's text inside a message is broken by a guard,
// a string that occurs nowhere in the conversation. The rendered text is then cut at the control
// tokens that are still whole, which only the template can have written, and the pieces between
// them become tokens as ordinary text once the guards are taken out. Nothing depends on what the
// template does to a message in between (trim, split, replace), and a conversation without such
// text gives exactly the tokens that parsing the whole rendered text would give.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/control_tokens.h"
#include "model/tokenizer.h"
#include "qevict/status.h"

struct common_chat_templates;

namespace qevict {

struct ChatMessage {
  std::string role;  // "system", "developer", "user", "assistant" or "tool"
  std::string content;
};

class ChatTemplate {
 public:
  // Uses the model's own template; a model without one gets ChatML, and `is_default` says so.
  // `tokenizer` must outlive the result. Error kBadFile: the template does not parse; the message
  // says to use --raw.
  [[nodiscard]] static Result<ChatTemplate> Load(const Tokenizer& tokenizer);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // The prompt that ends where the assistant's next answer begins; a beginning-of-sequence token
  // comes first when the model asks for one. Never empty. Errors: kInvalidArgument (an unknown
  // role, text that is not valid UTF-8, or messages that the template refuses: two user messages in
  // a row, for example), kBadFile (the template makes nothing of the messages), kInternal (libllama
  // failed).
  [[nodiscard]] Result<std::vector<Token>> Encode(std::span<const ChatMessage> messages) const;

  // For a running conversation whose last two messages are the answer just given and the user's
  // reply: what follows the answer's own tokens, up to where the next answer begins. May be empty.
  // Errors: kUnsupported (this template rewrites earlier turns when a new one comes, to drop
  // thoughts for example; encode the whole conversation instead), kInvalidArgument and kInternal as
  // above.
  [[nodiscard]] Result<std::vector<Token>> EncodeReply(std::span<const ChatMessage> messages) const;

  // The same prompt as text, to look at. It cannot be encoded safely: see above. Error
  // kInvalidArgument.
  [[nodiscard]] Result<std::string> Render(std::span<const ChatMessage> messages) const;
  bool is_default() const { return is_default_; }

 private:
  struct Deleter {
    void operator()(common_chat_templates* templates) const;
  };
  explicit ChatTemplate(const Tokenizer& tokenizer);
  std::string Guarded(std::string_view content, std::string_view guard) const;
  [[nodiscard]] Result<std::string> RenderGuarded(std::span<const ChatMessage> messages,
                                                  std::string_view guard) const;
  [[nodiscard]] Result<std::vector<Token>> EncodeGuarded(std::string_view text,
                                                         std::string_view guard) const;

  const Tokenizer* tokenizer_;
  ControlTokens control_tokens_;
  std::unique_ptr<common_chat_templates, Deleter> templates_;
  bool is_default_ = false;
};

}  // namespace qevict
