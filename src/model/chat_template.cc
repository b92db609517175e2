#include "model/chat_template.h"

#include <chat.h>
#include <fmt/format.h>
#include <log.h>

#include <algorithm>
#include <mutex>
#include <new>

#include "core/utf8.h"

namespace qevict {
namespace {

// The roles that templates know. A free choice would be a way to write control tokens: some
// templates make them from the role, as in "<|" + role + "|>".
constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};

constexpr char kNoMemory[] = "not enough memory for the chat template; shorten the messages";

Status CheckMessages(std::span<const ChatMessage> messages) {
  if (messages.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "a conversation needs at least one message");
  }
  for (const ChatMessage& message : messages) {
    if (std::ranges::find(kRoles, message.role) == std::end(kRoles)) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' is no role; use system, developer, user, assistant or tool",
                              ReplaceInvalidUtf8(message.role.substr(0, 40))));
    }
    if (const auto offset = FirstInvalidUtf8(message.content)) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("the {} message is not valid UTF-8 at byte {}; convert it to UTF-8 "
                              "first",
                              message.role, *offset));
    }
  }
  return {};
}

// A non-character of Unicode around a number; the number makes it unlike anything in the messages.
std::string FreeGuard(std::span<const ChatMessage> messages) {
  for (uint32_t number = 0;; ++number) {
    std::string guard = fmt::format("\xEF\xB7\x90{}\xEF\xB7\x91", number);
    const auto contains_guard = [&](const ChatMessage& message) {
      return message.content.find(guard) != std::string::npos;
    };
    if (std::ranges::none_of(messages, contains_guard)) return guard;
  }
}

std::string Without(std::string_view text, std::string_view guard) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t next = std::min(text.find(guard, at), text.size());
    out += text.substr(at, next - at);
    at = next + guard.size();
  }
  return out;
}

// The template engine reports with an excerpt of the template over several lines; what went wrong
// is in the last one.
std::string Reason(const std::exception& error) {
  std::string text = error.what();
  for (const std::string_view mark : {"Jinja Exception: ", "Error: "}) {
    if (const size_t at = text.rfind(mark); at != text.npos) {
      text.erase(0, at + mark.size());
      break;
    }
  }
  std::ranges::replace(text, '\n', ' ');
  if (text.size() > 200) text.resize(200);
  return ReplaceInvalidUtf8(text);
}

std::string_view TrimEnd(std::string_view text) {
  const size_t last = text.find_last_not_of(" \t\n\v\f\r");
  return last == std::string_view::npos ? "" : text.substr(0, last + 1);
}

}  // namespace

void ChatTemplate::Deleter::operator()(common_chat_templates* templates) const {
  common_chat_templates_free(templates);
}

ChatTemplate::ChatTemplate(const Tokenizer& tokenizer)
    : tokenizer_(&tokenizer), control_tokens_(tokenizer.vocab()) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::Load(const Tokenizer& tokenizer) {
  // `common` logs through its own thread, not through ggml's callback.
  static std::once_flag silenced;
  std::call_once(silenced, [] { common_log_set_verbosity_thold(-1); });
  ChatTemplate chat(tokenizer);
  try {
    chat.templates_.reset(common_chat_templates_init(tokenizer.llama(), "").release());
    chat.is_default_ = !common_chat_templates_was_explicit(chat.templates_.get());
  } catch (const std::bad_alloc&) {
    return Fail(ErrorCode::kOutOfMemory, kNoMemory);
  } catch (const std::exception& error) {
    return Fail(
        ErrorCode::kBadFile,
        fmt::format("the model's chat template cannot be used ({}); use --raw", Reason(error)));
  }
  return chat;
}

std::string ChatTemplate::Guarded(std::string_view content, std::string_view guard) const {
  std::string out;
  size_t done = 0;
  const auto break_at = [&](size_t offset) {  // after the first byte, which is never white space
    out.append(content.substr(done, offset + 1 - done)).append(guard);
    done = offset + 1;
  };
  for (auto match = control_tokens_.Find(content, 0); match;
       match = control_tokens_.Find(content, done)) {
    break_at(match->offset);
  }
  // What comes next in the rendered text must not complete a token either.
  const size_t open_end = control_tokens_.OpenEnd(content.substr(done));
  if (open_end > 0) break_at(content.size() - open_end);
  out.append(content.substr(done));
  return out;
}

Result<std::string> ChatTemplate::RenderGuarded(std::span<const ChatMessage> messages,
                                                std::string_view guard) const {
  common_chat_templates_inputs inputs;
  for (const ChatMessage& message : messages) {
    common_chat_msg& copy = inputs.messages.emplace_back();
    copy.role = message.role;
    copy.content = guard.empty() ? message.content : Guarded(message.content, guard);
  }
  inputs.add_generation_prompt = true;
  inputs.force_pure_content = true;  // no parser for tool calls: it costs and can fail
  inputs.add_bos = llama_vocab_get_add_bos(tokenizer_->vocab());  // then it is ours to add
  try {
    return common_chat_templates_apply(templates_.get(), inputs).prompt;
  } catch (const std::bad_alloc&) {
    return Fail(ErrorCode::kOutOfMemory, kNoMemory);
  } catch (const std::exception& error) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("the model's chat template refuses the messages: {}", Reason(error)));
  }
}

Result<std::string> ChatTemplate::Render(std::span<const ChatMessage> messages) const {
  QEVICT_RETURN_IF_ERROR(CheckMessages(messages));
  return RenderGuarded(messages, "");
}

Result<std::vector<Token>> ChatTemplate::EncodeGuarded(std::string_view text,
                                                       std::string_view guard) const {
  std::vector<Token> tokens;
  for (size_t done = 0; done < text.size();) {
    const auto match = control_tokens_.Find(text, done);
    std::string_view plain = text.substr(done, match ? match->offset - done : text.npos);
    if (match && match->strips_before) plain = TrimEnd(plain);
    if (!plain.empty()) {
      QEVICT_ASSIGN_OR_RETURN(
          const std::vector<Token> piece,
          tokenizer_->Encode(Without(plain, guard), SpecialText::kPlain, Bos::kNever));
      tokens.insert(tokens.end(), piece.begin(), piece.end());
    }
    if (!match) break;
    tokens.push_back(match->token);
    done = match->offset + match->bytes;
    if (match->strips_after)
      done = std::min(text.find_first_not_of(" \t\n\v\f\r", done), text.size());
  }
  return tokens;
}

Result<std::vector<Token>> ChatTemplate::Encode(std::span<const ChatMessage> messages) const {
  QEVICT_RETURN_IF_ERROR(CheckMessages(messages));
  const std::string guard = FreeGuard(messages);
  QEVICT_ASSIGN_OR_RETURN(const std::string text, RenderGuarded(messages, guard));
  QEVICT_ASSIGN_OR_RETURN(std::vector<Token> tokens,
                          tokenizer_->Encode("", SpecialText::kPlain, Bos::kModelDefault));
  QEVICT_ASSIGN_OR_RETURN(const std::vector<Token> body, EncodeGuarded(text, guard));
  tokens.insert(tokens.end(), body.begin(), body.end());
  if (tokens.empty()) {
    return Fail(ErrorCode::kBadFile,
                "the model's chat template makes nothing of the messages; use --raw");
  }
  return tokens;
}

Result<std::vector<Token>> ChatTemplate::EncodeReply(std::span<const ChatMessage> messages) const {
  QEVICT_RETURN_IF_ERROR(CheckMessages(messages));
  if (messages.size() < 3 || messages[messages.size() - 2].role != "assistant") {
    return Fail(ErrorCode::kUnsupported,
                "the conversation does not end with an answer and a reply");
  }
  const std::string guard = FreeGuard(messages);
  const auto before = messages.first(messages.size() - 2);
  QEVICT_ASSIGN_OR_RETURN(std::string prefix, RenderGuarded(before, guard));
  prefix += Guarded(messages[messages.size() - 2].content, guard);
  QEVICT_ASSIGN_OR_RETURN(const std::string text, RenderGuarded(messages, guard));
  if (!text.starts_with(prefix)) {
    return Fail(ErrorCode::kUnsupported,
                "the model's chat template rewrites earlier turns of a conversation");
  }
  return EncodeGuarded(std::string_view(text).substr(prefix.size()), guard);
}

}  // namespace qevict
