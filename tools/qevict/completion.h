// Shell completion scripts, generated from the tree of commands and flags, so that they never lag
// behind it.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "tools/qevict/cli_fwd.h"

namespace qevict::cli {

enum class ValueKind { kNone, kOther, kChoice, kFile, kModel, kModelName };  // kModel: a file too

// What a flag or positional argument takes. The kind comes from its type name in the help: FILE,
// MODEL (a file or a known name), KNOWN_MODEL (a known name), {a,b} (one of these).
struct CompletionValue {
  ValueKind kind = ValueKind::kNone;
  std::vector<std::string> words;  // what may be completed besides files
};
struct CompletionFlag {
  std::vector<std::string> names;  // "--model", "-m"
  std::string description;
  CompletionValue value;
};
struct CompletionCommand {
  std::string path;  // "" for the program itself, "/models/fetch" for a nested command
  std::string name, description;
  std::vector<CompletionFlag> flags;
  std::vector<const CompletionCommand*> children;
  CompletionValue positional;
};

// Parents before children; the first one is the program. Hidden commands and flags are left out.
class CompletionTree {
 public:
  explicit CompletionTree(const CLI::App& app);
  const std::deque<CompletionCommand>& commands() const { return commands_; }

 private:
  const CompletionCommand* Add(const CLI::App& app, const std::string& path);
  std::deque<CompletionCommand> commands_;
};

// What the scripts of bash and zsh, two dialects of one language, are made of. Both know where they
// are by a command's path, and a flag in it by "path:flag".
struct CompletionCases {
  std::string paths;     // "/run|/models|/models/fetch": a pattern that all commands match
  std::string values;    // a branch of a `case` per flag that takes a value
  std::string commands;  // a branch per command
};
// `complete` says what offers a value, `command_branch` what offers the rest of a command.
CompletionCases GatherCases(const CompletionTree& tree,
                            std::string (*complete)(const CompletionValue& value),
                            std::string (*command_branch)(const CompletionCommand& command));

std::string BashCompletion(const CompletionTree& tree);
std::string ZshCompletion(const CompletionTree& tree);
std::string FishCompletion(const CompletionTree& tree);

}  // namespace qevict::cli
