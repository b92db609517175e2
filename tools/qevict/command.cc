#include "tools/qevict/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string_view>
#include <vector>

#include "tools/qevict/json_output.h"
#include "tools/qevict/nearest_name.h"
#include "tools/qevict/print.h"

namespace qevict::cli {
namespace {

OutputFormat AskedFormat(int argc, const char* const* argv) {
  const auto is_end = [](std::string_view argument) { return argument == "--"; };
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  const auto end = std::ranges::find_if(arguments, is_end);
  return std::find(arguments.begin(), end, "--json") == end ? OutputFormat::kText
                                                            : OutputFormat::kJson;
}

// The command that the user named last: `fetch` in `qevict models fetch`.
const CLI::App* Chosen(const CLI::App& app) {
  const CLI::App* chosen = &app;
  while (!chosen->get_subcommands().empty()) chosen = chosen->get_subcommands().front();
  return chosen;
}

std::string FullName(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : FullName(*app.get_parent()) + " " + app.get_name();
}

std::vector<std::string> FlagNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_name().empty() && command->get_group() != "")
      names.push_back(command->get_name());
  }
  return names;
}

// What the user typed that no command knows: a word in the place of a command, else a flag before
// any other word; empty when all was understood.
std::string UnknownArgument(const CLI::App& app) {
  const std::vector<std::string> remaining = app.remaining(/*recurse=*/true);
  const auto is_flag = [](const std::string& argument) {
    return argument.size() > 1 && argument[0] == '-';
  };
  const bool no_command = !remaining.empty() && app.get_subcommands().empty();
  if (no_command && !is_flag(remaining.front())) return remaining.front();
  const auto flag = std::ranges::find_if(remaining, is_flag);
  if (flag != remaining.end()) return flag->substr(0, flag->find('='));
  return remaining.empty() ? "" : remaining.front();
}

// What a user typed may stand in a message: control characters must not reach the terminal.
std::string OneLine(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  std::ranges::replace_if(
      text, [](char c) { return uint8_t(c) < 0x20 || c == 0x7f; }, '?');
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

ExitStatus Report(const Error& error, OutputFormat format) {
  if (format == OutputFormat::kJson) {
    PrintJson({{"error", ErrorJson(error)}});
  } else {
    Print(stderr, "error: {}\n", OneLine(error.message));
  }
  return ExitStatusOf(error.code);
}

Error UsageError(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& chosen = *Chosen(app);
  const std::string unknown = UnknownArgument(app);
  std::string message = OneLine(error.what());
  if (!unknown.empty()) {
    const bool is_flag = unknown[0] == '-';
    const std::vector<std::string> commands = CommandNames(chosen);
    const std::string nearest = NearestName(unknown, is_flag ? FlagNames(chosen) : commands);
    message = fmt::format("unknown {} '{}'",
                          is_flag            ? "flag"
                          : commands.empty() ? "argument"
                                             : "command",
                          unknown);
    if (!nearest.empty()) message += fmt::format("; did you mean {}?", nearest);
  }
  return {ErrorCode::kInvalidArgument,
          fmt::format("{} (see {} --help)", message, FullName(chosen))};
}

}  // namespace

CommandLine::CommandLine()
    : app_(std::make_unique<CLI::App>("Long context for language models in a fixed number of bytes",
                                      "qevict")) {
  app_->require_subcommand(0, 1);
  app_->add_flag("--version", version_, "Print the version and exit");
  app_->get_formatter()->column_width(34);
  app_->footer(
      "Run `qevict COMMAND --help` for the flags of a command. Exit codes: docs/command-line.md.");
}

CommandLine::~CommandLine() = default;

CLI::App* CommandLine::Add(CLI::App& parent, const CommandSpec& spec, CommandBody body) {
  CLI::App* command = parent.add_subcommand(spec.name, spec.description);
  Entry& entry = entries_.emplace_back(Entry{command, std::move(body)});
  command->add_flag("--json", entry.json, "Print one JSON object instead of text");
  command->footer(spec.examples.empty() ? "" : "Examples:\n" + spec.examples);
  return command;
}

int CommandLine::Run(int argc, const char* const* argv) {
  const Result<ExitStatus> outcome = ParseAndRun(argc, argv);
  ExitStatus status = outcome ? *outcome : Report(outcome.error(), AskedFormat(argc, argv));
  // A full disk or closed pipe behind stdout shows only when the buffer is written out.
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
    Print(stderr, "error: standard output cannot be written; check the disk or pipe behind it\n");
    if (status == ExitStatus::kOk) status = ExitStatus::kIo;
  }
  return int(status);
}

Result<ExitStatus> CommandLine::ParseAndRun(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const CLI::App& chosen = *Chosen(*app_);
    Print(stdout, "{}",
          chosen.help(chosen.get_parent() == nullptr ? "" : FullName(*chosen.get_parent())));
    return ExitStatus::kOk;
  } catch (const CLI::ParseError& error) {
    return tl::unexpected(UsageError(*app_, error));
  }
  const CLI::App* chosen = version_ ? app_->get_subcommand("version") : Chosen(*app_);
  const auto entry = std::ranges::find(entries_, chosen, &Entry::app);
  if (entry == entries_.end()) {
    Print(stderr, "{}", app_->help());
    return Fail(ErrorCode::kInvalidArgument, "a command is missing; name one of those above");
  }
  // What a library or the printing of results may throw ends here.
  try {
    return entry->body(entry->json ? OutputFormat::kJson : OutputFormat::kText);
  } catch (const std::bad_alloc&) {
    return Fail(ErrorCode::kOutOfMemory,
                "not enough memory; free some, lower --ctx or use a smaller model");
  } catch (const std::exception& error) {
    return Fail(ErrorCode::kInternal, fmt::format("unexpected: {}", error.what()));
  }
}

void AddAllCommands(CommandLine& line) {
  AddRunCommand(line);
  AddInfoCommand(line);
  AddModelsCommand(line);
  AddBenchCommand(line);
  AddFidelityCommand(line);
  AddVersionCommand(line);
  AddCompletionCommand(line);
}

}  // namespace qevict::cli
