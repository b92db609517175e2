// The frame of the command line: a command adds its flags to the CLI11 tree and hands over the
// function that runs it. Results go to stdout, everything else to stderr. How a command looks:
// cmd_version.cc.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "qevict/status.h"
#include "tools/qevict/cli_fwd.h"
#include "tools/qevict/exit_status.h"

namespace qevict::cli {

// kJson: --json was given; stdout receives exactly one JSON object.
enum class OutputFormat { kText, kJson };

// Runs after all flags were parsed. An error is printed by the frame (as text or JSON) and decides
// the exit code; a command that has already printed its whole result and still must not exit with 0
// returns another ExitStatus instead.
using CommandBody = std::function<Result<ExitStatus>(OutputFormat)>;

struct CommandSpec {
  std::string name, description;
  std::string examples;  // lines for the help's footer, each "  qevict ..."
};

class CommandLine {
 public:
  CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();

  CLI::App& app() { return *app_; }
  // Adds a command with --json; the caller adds its other flags to what comes back, bound to
  // options that `body` owns (a shared_ptr in its capture). The second form nests a command under
  // another, as in `qevict models fetch`.
  CLI::App* Add(const CommandSpec& spec, CommandBody body) {
    return Add(*app_, spec, std::move(body));
  }
  CLI::App* Add(CLI::App& parent, const CommandSpec& spec, CommandBody body);

  // Parses, runs the chosen command, prints its error if it has one, and returns the exit code of
  // the program.
  int Run(int argc, const char* const* argv);

 private:
  struct Entry {
    CLI::App* app;
    CommandBody body;
    bool json = false;
  };
  [[nodiscard]] Result<ExitStatus> ParseAndRun(int argc, const char* const* argv);

  std::unique_ptr<CLI::App> app_;
  std::deque<Entry> entries_;  // addresses stay valid: CLI11 writes `json` through a reference
  bool version_ = false;
};

// One function per command, in cmd_NAME.cc; main.cc calls them all.
void AddRunCommand(CommandLine& line);
void AddInfoCommand(CommandLine& line);
void AddModelsCommand(CommandLine& line);
void AddBenchCommand(CommandLine& line);
void AddFidelityCommand(CommandLine& line);
void AddVersionCommand(CommandLine& line);
void AddCompletionCommand(CommandLine& line);
void AddAllCommands(CommandLine& line);

}  // namespace qevict::cli
