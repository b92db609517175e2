#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/qevict/completion.h"

namespace qevict::cli {
namespace {

// Inside '...'; in `_describe` lists a colon separates word and description.
std::string Quoted(const std::string& text, std::string_view escaped) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      if (escaped.find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  return out;
}

std::string Complete(const CompletionValue& value) {
  const std::string words = fmt::format("compadd -- {}", fmt::join(value.words, " "));
  switch (value.kind) {
    case ValueKind::kNone:
    case ValueKind::kOther:
      return "_message value";
    case ValueKind::kFile:
      return "_files";
    case ValueKind::kModel:
      return words + "; _files";
    case ValueKind::kChoice:
    case ValueKind::kModelName:
      return words;
  }
  return "";
}

std::string ZshCommandCase(const CompletionCommand& command) {
  std::string flags, children;
  for (const CompletionFlag& flag : command.flags) {
    for (const std::string& name : flag.names)
      flags += fmt::format(" '{}:{}'", name, Quoted(flag.description, ":"));
  }
  for (const CompletionCommand* child : command.children) {
    children += fmt::format(" '{}:{}'", child->name, Quoted(child->description, ":"));
  }
  std::string other;
  if (!children.empty()) other = "_describe command commands";
  if (command.positional.kind != ValueKind::kNone) other = Complete(command.positional);
  return fmt::format(
      "    ('{}') flags=({}) commands=({})\n      if [[ $cur == -* ]]; then _describe flag flags{} "
      "fi ;;\n",
      command.path, flags, children, other.empty() ? ";" : "; else " + other + ";");
}

}  // namespace

std::string ZshCompletion(const CompletionTree& tree) {
  const CompletionCases cases = GatherCases(tree, Complete, ZshCommandCase);
  return fmt::format(R"(#compdef qevict
# zsh completion for qevict: source <(qevict completion zsh), or save it as _qevict in a folder of $fpath
_qevict() {{
  local cur=${{words[CURRENT]}} prev=${{words[CURRENT-1]}} at='' i
  local -a flags commands
  for ((i = 2; i < CURRENT; i++)); do
    case "$at/${{words[i]}}" in
      ({}) at="$at/${{words[i]}}" ;;
    esac
  done
  # --flag=value: complete the value and leave the flag in place.
  if [[ $cur == --*=* ]]; then prev=${{cur%%=*}}; compset -P '*='; fi
  case "$at:$prev" in
{}  esac
  case "$at" in
{}  esac
}}
if [[ $funcstack[1] == _qevict ]]; then _qevict "$@"; else compdef _qevict qevict; fi
)",
                     cases.paths, cases.values, cases.commands);
}

}  // namespace qevict::cli
