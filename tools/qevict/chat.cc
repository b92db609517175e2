#include "tools/qevict/chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include "tools/qevict/answer.h"
#include "tools/qevict/chat_turns.h"
#include "tools/qevict/interrupt.h"
#include "tools/qevict/line_input.h"
#include "tools/qevict/print.h"
#include "tools/qevict/run_report.h"
#include "tools/qevict/text_source.h"
#include "tools/qevict/units.h"

namespace qevict::cli {
namespace {

constexpr char kHelp[] =
    "/exit or Ctrl-D ends, /clear forgets the conversation, Ctrl-C stops an answer, a line that "
    "ends with \\ continues on the next\n";

class ChatSession {
 public:
  ChatSession(Engine& engine, std::unique_ptr<Sequence> sequence, const ChatTemplate& chat_template,
              const RunOptions& options)
      : engine_(engine),
        sequence_(std::move(sequence)),
        options_(options),
        turns_(chat_template, options.system),
        on_terminal_(isatty(STDIN_FILENO) && isatty(STDERR_FILENO)) {}

  Result<ExitStatus> Run(const std::string& first_message) {
    if (on_terminal_ && !options_.quiet) Print(stderr, "{}", kHelp);
    if (!first_message.empty()) QEVICT_RETURN_IF_ERROR(Turn(first_message));
    while (!Terminated()) {
      if (on_terminal_) Print(stderr, "> ");
      QEVICT_ASSIGN_OR_RETURN(const std::optional<std::string> line, input_.Next());
      if (!line) {
        if (on_terminal_) Print(stderr, "\n");
        break;
      }
      if (*line == "/exit") return Ended(ExitStatus::kOk);
      QEVICT_RETURN_IF_ERROR(Obey(*line));
    }
    return Ended(Interrupted() ? ExitStatus::kInterrupted : ExitStatus::kOk);
  }

 private:
  ExitStatus Ended(ExitStatus status) const {
    if (!options_.quiet) Print(stderr, "{}", CacheSummary(sequence_->kv_usage()));
    return status;
  }
  Status Obey(const std::string& line) {
    if (line == "/clear") {
      turns_.Clear();
      return {};
    }
    if (line == "/help") {
      Print(stderr, "{}", kHelp);
      return {};
    }
    if (line.find_first_not_of(" \t\r\n") == line.npos) return {};
    const Status turn = Turn(line);
    const bool can_go_on = !turn.ok() && on_terminal_ &&
                           (turn.error().code == ErrorCode::kContextFull ||
                            turn.error().code == ErrorCode::kInvalidArgument);
    if (!can_go_on) return turn;
    Print(stderr, "{}\n", turn.error().message);
    return {};
  }

  Status Turn(const std::string& message) {
    QEVICT_RETURN_IF_ERROR(CheckUtf8(message, "the message"));
    QEVICT_ASSIGN_OR_RETURN(std::vector<Token> prompt, turns_.Prompt(message));
    const uint32_t capacity = sequence_->capacity_tokens();
    if (prompt.size() > capacity) {
      return Fail(ErrorCode::kContextFull,
                  fmt::format("the conversation would have {} tokens, the context has {}; /clear "
                              "forgets it, a larger --ctx keeps more",
                              FormatTokens(prompt.size()), FormatTokens(capacity)));
    }
    QEVICT_RETURN_IF_ERROR(Rewind(engine_, sequence_, prompt));
    const AnswerRequest request{
        .prompt = prompt,
        .sampling = &options_.sampling,
        .generate = &options_.generate,
        .progress = options_.quiet ? ProgressLine::Style::kSilent : StyleOnTerminalOnly()};
    QEVICT_ASSIGN_OR_RETURN(const Answer answer,
                            AnswerPrompt(engine_, *sequence_, request, &output_));
    output_.Write("\n");
    QEVICT_RETURN_IF_ERROR(output_.status());
    if (on_terminal_ && !options_.quiet) {
      Print(stderr, "{}", TurnSummary(answer, capacity));
    }
    turns_.Answered(message, std::move(prompt), answer.outcome);
    ForgetInterrupt();
    return {};
  }

  Engine& engine_;
  std::unique_ptr<Sequence> sequence_;
  const RunOptions& options_;
  ChatTurns turns_;
  AnswerOutput output_;
  LineInput input_;
  const bool on_terminal_;
};

}  // namespace

Result<ExitStatus> Chat(Engine& engine, std::unique_ptr<Sequence> sequence,
                        const ChatTemplate& chat_template, const RunOptions& options,
                        const std::string& first_message) {
  return ChatSession(engine, std::move(sequence), chat_template, options).Run(first_message);
}

}  // namespace qevict::cli
