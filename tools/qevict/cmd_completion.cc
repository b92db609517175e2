#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "tools/qevict/command.h"
#include "tools/qevict/completion.h"
#include "tools/qevict/json_output.h"
#include "tools/qevict/print.h"

namespace qevict::cli {
namespace {

std::string Script(const std::string& shell, const CompletionTree& tree) {
  if (shell == "bash") return BashCompletion(tree);
  return shell == "zsh" ? ZshCompletion(tree) : FishCompletion(tree);
}

}  // namespace

void AddCompletionCommand(CommandLine& line) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command =
      line.Add({"completion", "Print the completion script of a shell",
                "  source <(qevict completion bash)\n"
                "  qevict completion zsh > ~/.zfunc/_qevict\n"
                "  qevict completion fish > ~/.config/fish/completions/qevict.fish"},
               [shell, &line](OutputFormat format) -> Result<ExitStatus> {
                 const std::string script = Script(*shell, CompletionTree(line.app()));
                 if (format == OutputFormat::kJson) {
                   PrintJson({{"shell", *shell}, {"script", script}});
                 } else {
                   Print(stdout, "{}", script);
                 }
                 return ExitStatus::kOk;
               });
  command->add_option("shell", *shell, "The shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
}

}  // namespace qevict::cli
