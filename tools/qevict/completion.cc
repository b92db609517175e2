#include "tools/qevict/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <sstream>

#include "engine/model_catalog.h"

namespace qevict::cli {
namespace {

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const CatalogModel& model : Catalog()) names.emplace_back(model.name);
  return names;
}

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> words;
  std::stringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

CompletionValue ValueOf(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return {};
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.find('}');
  if (open != std::string::npos && close != std::string::npos) {
    return {ValueKind::kChoice, SplitAtCommas(type.substr(open + 1, close - open - 1))};
  }
  if (type.starts_with("MODEL")) return {ValueKind::kModel, ModelNames()};
  if (type.starts_with("KNOWN_MODEL")) return {ValueKind::kModelName, ModelNames()};
  if (type.starts_with("FILE")) return {ValueKind::kFile, {}};
  return {ValueKind::kOther, {}};
}

CompletionFlag FlagOf(const CLI::Option& option) {
  CompletionFlag flag{
      .names = {}, .description = option.get_description(), .value = ValueOf(option)};
  for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
  return flag;
}

}  // namespace

CompletionTree::CompletionTree(const CLI::App& app) { Add(app, ""); }

const CompletionCommand* CompletionTree::Add(const CLI::App& app, const std::string& path) {
  CompletionCommand& command = commands_.emplace_back();
  command.path = path;
  command.name = app.get_name();
  command.description = app.get_description();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    if (option->get_positional()) {
      command.positional = ValueOf(*option);
    } else {
      command.flags.push_back(FlagOf(*option));
    }
  }
  for (const CLI::App* child : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!child->get_group().empty())
      command.children.push_back(Add(*child, path + "/" + child->get_name()));
  }
  return &command;
}

CompletionCases GatherCases(const CompletionTree& tree,
                            std::string (*complete)(const CompletionValue& value),
                            std::string (*command_branch)(const CompletionCommand& command)) {
  CompletionCases cases;
  std::vector<std::string> paths;
  for (const CompletionCommand& command : tree.commands()) {
    if (!command.path.empty()) paths.push_back(command.path);
    for (const CompletionFlag& flag : command.flags) {
      if (flag.value.kind == ValueKind::kNone) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : flag.names) patterns.push_back(command.path + ":" + name);
      cases.values +=
          fmt::format("    ({}) {}; return ;;\n", fmt::join(patterns, "|"), complete(flag.value));
    }
    cases.commands += command_branch(command);
  }
  cases.paths = fmt::format("{}", fmt::join(paths, "|"));
  return cases;
}

}  // namespace qevict::cli
