#include "tools/qevict/chat_turns.h"

#include <algorithm>

namespace qevict::cli {

ChatTurns::ChatTurns(const ChatTemplate& chat, std::optional<std::string> system)
    : chat_(chat), system_(std::move(system)) {
  Clear();
}

void ChatTurns::Clear() {
  messages_.clear();
  tokens_.clear();
  if (system_) messages_.push_back({"system", *system_});
}

std::vector<ChatMessage> ChatTurns::With(const std::string& message) const {
  std::vector<ChatMessage> messages = messages_;
  messages.push_back({"user", message});
  return messages;
}

Result<std::vector<Token>> ChatTurns::Prompt(const std::string& message) const {
  const std::vector<ChatMessage> messages = With(message);
  if (!tokens_.empty()) {
    // The answer's own tokens are kept: its text could become other tokens when it is read again.
    if (auto reply = chat_.EncodeReply(messages)) {
      std::vector<Token> tokens = tokens_;
      tokens.insert(tokens.end(), reply->begin(), reply->end());
      return tokens;
    }
  }
  return chat_.Encode(messages);
}

void ChatTurns::Answered(const std::string& message, std::vector<Token> prompt,
                         const GenerateOutcome& outcome) {
  if (outcome.text.empty()) return;
  messages_ = With(message);
  messages_.push_back({"assistant", outcome.text});
  tokens_ = std::move(prompt);
  tokens_.insert(tokens_.end(), outcome.tokens.begin(), outcome.tokens.end());
  // The tokens of a stop string are not part of the text.
  if (outcome.reason == StopReason::kStopString) tokens_.clear();
}

Status Rewind(Engine& engine, std::unique_ptr<Sequence>& sequence, std::span<const Token> prompt) {
  const std::span<const Token> held = sequence->tokens();
  const auto kept = prompt.first(prompt.size() - 1);
  const size_t common = size_t(std::ranges::mismatch(held, kept).in1 - held.begin());
  if (common == held.size()) return {};
  const Status truncated = sequence->Truncate(uint32_t(common));
  if (truncated.ok() || truncated.error().code != ErrorCode::kUnsupported) return truncated;
  const uint32_t capacity = sequence->capacity_tokens();
  sequence.reset();  // before the new one takes memory
  QEVICT_ASSIGN_OR_RETURN(sequence, engine.NewSequence(capacity));
  return {};
}

}  // namespace qevict::cli
