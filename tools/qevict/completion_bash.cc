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

std::string BashCommandCase(const CompletionCommand& command) {
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
  const CompletionCases cases = GatherCases(tree, Reply, BashCommandCase);
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
                     cases.paths, cases.values, cases.commands);
}

}  // namespace qevict::cli
