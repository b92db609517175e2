// The chat template of a GGUF file (Jinja), through libllama's common library.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/tokenizer.h"
#include "qevict/status.h"

struct common_chat_templates;

namespace qevict {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

class ChatTemplate {
 public:
  // Uses the model's own template; a model without one gets ChatML, and `is_default` says so.
  // Error kBadFile: the template does not parse; the message says to use --raw.
  static Result<ChatTemplate> Load(const Tokenizer& tokenizer);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // The prompt text that ends where the assistant's next answer begins. Encode it with SpecialText::kParse.
  // Error kInvalidArgument: the template refuses the messages (a role it does not know, for example).
  Result<std::string> Render(std::span<const ChatMessage> messages) const;
  bool is_default() const { return is_default_; }

 private:
  struct Deleter { void operator()(common_chat_templates* templates) const; };
  ChatTemplate() = default;
  std::unique_ptr<common_chat_templates, Deleter> templates_;
  bool is_default_ = false;
};

}  // namespace qevict
