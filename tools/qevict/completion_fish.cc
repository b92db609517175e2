#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/qevict/completion.h"

namespace qevict::cli {
namespace {

std::string Quoted(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string Values(const CompletionValue& value) {
  std::string arguments;
  if (!value.words.empty()) arguments += fmt::format(" -a '{}'", fmt::join(value.words, " "));
  if (value.kind == ValueKind::kFile || value.kind == ValueKind::kModel) arguments += " -F";
  return arguments;
}

std::string Lines(const CompletionCommand& command) {
  const std::string start = fmt::format("complete -c qevict -n '__qevict_at \"{}\"'", command.path);
  std::string lines;
  for (const CompletionCommand* child : command.children) {
    lines += fmt::format("{} -a {} -d '{}'\n", start, child->name, Quoted(child->description));
  }
  if (command.positional.kind != ValueKind::kNone)
    lines += start + Values(command.positional) + "\n";
  for (const CompletionFlag& flag : command.flags) {
    lines += start;
    for (const std::string& name : flag.names) {
      lines += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    if (flag.value.kind != ValueKind::kNone) lines += " -r" + Values(flag.value);
    lines += fmt::format(" -d '{}'\n", Quoted(flag.description));
  }
  return lines;
}

}  // namespace

std::string FishCompletion(const CompletionTree& tree) {
  std::string lines;
  std::vector<std::string> paths;
  for (const CompletionCommand& command : tree.commands()) {
    if (!command.path.empty()) paths.push_back(command.path);
    lines += Lines(command);
  }
  return fmt::format(R"(# fish completion for qevict: qevict completion fish | source
function __qevict_at
  set -l at ''
  for word in (commandline -opc)[2..-1]
    switch "$at/$word"
      case {}
        set at "$at/$word"
    end
  end
  test "$at" = "$argv[1]"
end
complete -c qevict -f
{})",
                     fmt::join(paths, " "), lines);
}

}  // namespace qevict::cli
