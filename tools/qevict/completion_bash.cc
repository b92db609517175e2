#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/qevict/completion.h"

namespace qevict::cli {
namespace {

bool TakesFiles(const CompletionValue& value) {
  return value.kind == ValueKind::kFile || value.kind == ValueKind::kModel;
}

// `_qevict_reply WORDS [files]` sets COMPREPLY.
std::string Reply(const CompletionValue& value) {
  return fmt::format("_qevict_reply '{}'{}", fmt::join(value.words, " "),
                     TakesFiles(value) ? " files" : "");
}

// One case per flag that takes a value: what may follow it.
std::string ValueCases(const CompletionCommand& command) {
  std::string cases;
  for (const CompletionFlag& flag : command.flags) {
    if (flag.value.kind == ValueKind::kNone) continue;
    std::vector<std::string> patterns;
    for (const std::string& name : flag.names) patterns.push_back(command.path + ":" + name);
    cases += fmt::format("    {}) {}; return ;;\n", fmt::join(patterns, "|"), Reply(flag.value));
  }
  return cases;
}

std::string CommandCase(const CompletionCommand& command) {
  std::vector<std::string> flags, children;
  for (const CompletionFlag& flag : command.flags)
    flags.insert(flags.end(), flag.names.begin(), flag.names.end());
  for (const CompletionCommand* child : command.children) children.push_back(child->name);
  children.insert(children.end(), command.positional.words.begin(), command.positional.words.end());
  const CompletionValue other = {command.positional.kind, children};
  return fmt::format("    '{}') case $cur in -*) _qevict_reply '{}' ;; *) {} ;; esac ;;\n",
                     command.path, fmt::join(flags, " "), Reply(other));
}

}  // namespace

std::string BashCompletion(const CompletionTree& tree) {
  std::string value_cases, command_cases;
  std::vector<std::string> paths;
  for (const CompletionCommand& command : tree.commands()) {
    if (!command.path.empty()) paths.push_back(command.path);
    value_cases += ValueCases(command);
    command_cases += CommandCase(command);
  }
  return fmt::format(R"(# bash completion for qevict: source <(qevict completion bash)
_qevict_reply() {{
  COMPREPLY=($(compgen -W "$1" -- "$cur"))
  if [[ $2 == files ]]; then
    compopt -o filenames 2>/dev/null
    local file
    while IFS= read -r file; do COMPREPLY+=("$file"); done < <(compgen -f -- "$cur")
  fi
}}

_qevict() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} at='' i
  # readline takes --flag=value apart at the '='.
  if [[ $cur == '=' ]]; then cur=''; elif [[ $prev == '=' ]]; then prev=${{COMP_WORDS[COMP_CWORD-2]}}; fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$at/${{COMP_WORDS[i]}}" in
      {}) at="$at/${{COMP_WORDS[i]}}" ;;
    esac
  done
  COMPREPLY=()
  case "$at:$prev" in
{}  esac
  case "$at" in
{}  esac
}}
complete -F _qevict qevict
)",
                     fmt::join(paths, "|"), value_cases, command_cases);
}

}  // namespace qevict::cli
