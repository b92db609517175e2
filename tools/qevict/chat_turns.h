// A conversation as a growing list of tokens: what was said stays in the cache, and only what is
// new is read.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/generator.h"
#include "model/chat_template.h"

namespace qevict::cli {

class ChatTurns {
 public:
  // `chat` must outlive the object.
  ChatTurns(const ChatTemplate& chat, std::optional<std::string> system);

  // The tokens of the conversation with this message, up to where the answer begins. On error, and
  // until Answered is called, the message is not part of the conversation.
  [[nodiscard]] Result<std::vector<Token>> Prompt(const std::string& message) const;
  // The message and the answer that the tokens of Prompt got. An answer without text is forgotten
  // with its message.
  void Answered(const std::string& message, std::vector<Token> prompt,
                const GenerateOutcome& outcome);
  void Clear();  // keeps the system message

 private:
  std::vector<ChatMessage> With(const std::string& message) const;
  const ChatTemplate& chat_;
  std::optional<std::string> system_;
  std::vector<ChatMessage> messages_;
  // Exactly what the model has read and written; empty when the next prompt has to begin anew.
  std::vector<Token> tokens_;
};

// Makes `sequence` hold the longest beginning of `prompt` that it can, and at least one token less
// than all. A cache that cannot forget (sliding windows) is replaced by a new one.
Status Rewind(Engine& engine, std::unique_ptr<Sequence>& sequence, std::span<const Token> prompt);

}  // namespace qevict::cli
