#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "engine/model_catalog.h"
#include "model/hyperparameters.h"
#include "model/validate_tokenizer.h"
#include "model/weight_summary.h"
#include "tools/qevict/command.h"
#include "tools/qevict/json_output.h"
#include "tools/qevict/table.h"
#include "tools/qevict/units.h"

namespace qevict::cli {
namespace {

struct ModelFacts {
  std::unique_ptr<GgufFile> file;
  std::string architecture, name, licence, tokenizer;
  bool has_chat_template = false;
  WeightSummary weights;
  std::optional<Hyperparameters> shape;  // absent: not even the shape is understood
  std::string unsupported;               // why; empty when the model runs
};

// Metadata that is only shown: a value of another type counts as absent.
std::string Text(const GgufFile& file, std::string_view key) {
  const auto value = file.FindString(key);
  return value ? value->value_or("") : "";
}

// Some files do not say it themselves.
std::string CatalogLicence(const std::string& path) {
  for (const CatalogModel& model : Catalog()) {
    if (path == CatalogPath(model)) return std::string(model.licence);
  }
  return "";
}

// A model that is valid but unsupported is described as far as it is understood; a bad file is an
// error.
Result<ModelFacts> ReadFacts(const std::string& path) {
  ModelFacts facts;
  QEVICT_ASSIGN_OR_RETURN(facts.file, GgufFile::Open(path));
  const GgufFile& file = *facts.file;
  facts.architecture = Text(file, "general.architecture");
  facts.name = Text(file, "general.name");
  facts.licence = Text(file, "general.license");
  if (facts.licence.empty()) facts.licence = CatalogLicence(path);
  facts.tokenizer = Text(file, "tokenizer.ggml.model");
  facts.has_chat_template = !Text(file, "tokenizer.chat_template").empty();
  facts.weights = SummarizeWeights(file);

  auto shape = ReadHyperparameters(file);
  Status status = shape ? ValidateTensors(file, *shape) : Status(shape.error());
  if (status.ok()) status = ValidateTokenizer(file);
  if (!status.ok() && status.error().code != ErrorCode::kUnsupported)
    return tl::unexpected(status.error());
  if (shape) facts.shape = std::move(*shape);
  if (!status.ok()) facts.unsupported = status.error().message;
  return facts;
}

uint32_t SwaLayers(const Hyperparameters& shape) {
  return shape.swa_window == 0 ? 0 : uint32_t(std::ranges::count(shape.swa_layer, true));
}

uint64_t LayerTokenBytes(const Hyperparameters& shape) {
  return shape.kv_bytes_per_token() / shape.layers;
}

// f16 keys and values: every token in global layers, at most the window in the others.
uint64_t KvBytes(const Hyperparameters& shape, uint64_t tokens) {
  const uint64_t swa = SwaLayers(shape), global = shape.layers - swa;
  return LayerTokenBytes(shape) *
         (global * tokens + swa * std::min<uint64_t>(tokens, shape.swa_window));
}

// 4K and 32K where the model reaches that far, and its full context.
std::vector<uint32_t> Contexts(const Hyperparameters& shape) {
  std::vector<uint32_t> contexts;
  for (const uint32_t tokens : {4096u, 32768u}) {
    if (tokens < shape.context_train) contexts.push_back(tokens);
  }
  contexts.push_back(shape.context_train);
  return contexts;
}

std::string_view ScalingName(RopeScaling::Kind kind) {
  switch (kind) {
    case RopeScaling::Kind::kNone:
      return "none";
    case RopeScaling::Kind::kLinear:
      return "linear";
    case RopeScaling::Kind::kYarn:
      return "yarn";
  }
  return "";
}

Json ShapeJson(const Hyperparameters& shape) {
  return {{"layers", shape.layers},
          {"heads", shape.heads},
          {"kv_heads", shape.kv_heads},
          {"head_dim", shape.head_dim},
          {"embedding", shape.embedding},
          {"feed_forward", shape.feed_forward},
          {"vocab", shape.vocab},
          {"context", shape.context_train},
          {"rope",
           {{"dims", shape.rope_dims},
            {"base", shape.rope_base},
            {"scaling", ScalingName(shape.rope_scaling.kind)},
            {"factor", shape.rope_scaling.factor}}},
          {"swa", {{"window", shape.swa_window}, {"layers", SwaLayers(shape)}}}};
}

Json KvJson(const Hyperparameters& shape) {
  Json contexts = Json::array();
  for (const uint32_t tokens : Contexts(shape)) {
    contexts.push_back({{"tokens", tokens}, {"bytes", KvBytes(shape, tokens)}});
  }
  const uint64_t swa = SwaLayers(shape);
  return {{"bytes_per_token", LayerTokenBytes(shape) * (shape.layers - swa)},
          {"swa_bytes", LayerTokenBytes(shape) * swa * shape.swa_window},
          {"contexts", contexts}};
}

void PrintFactsJson(const ModelFacts& facts) {
  Json types = Json::array();
  for (const WeightTypeShare& share : facts.weights.types) {
    types.push_back({{"type", share.type},
                     {"tensors", share.tensors},
                     {"parameters", share.parameters},
                     {"bytes", share.bytes}});
  }
  PrintJson(
      {{"path", facts.file->path()},
       {"architecture", facts.architecture},
       {"name", facts.name},
       {"licence", facts.licence},
       {"supported", facts.unsupported.empty()},
       {"reason", facts.unsupported},
       {"file_bytes", facts.file->file_bytes()},
       {"parameters", facts.weights.parameters},
       {"weight_bytes", facts.weights.bytes},
       {"tensor_types", types},
       {"tokenizer", {{"model", facts.tokenizer}, {"chat_template", facts.has_chat_template}}},
       {"shape", facts.shape ? ShapeJson(*facts.shape) : Json(nullptr)},
       {"kv", facts.shape ? KvJson(*facts.shape) : Json(nullptr)}});
}

void PrintShape(const Hyperparameters& shape) {
  fmt::print("layers         {}\n", shape.layers);
  fmt::print("heads          {} query, {} KV, of {} channels\n", shape.heads, shape.kv_heads,
             shape.head_dim);
  if (shape.swa_window != 0) {
    fmt::print("               sliding window of {} tokens in {} layers\n",
               FormatTokens(shape.swa_window), SwaLayers(shape));
  }
  fmt::print("embedding      {}\nfeed-forward   {}\n", shape.embedding, shape.feed_forward);
  fmt::print("vocabulary     {} tokens\n", FormatTokens(shape.vocab));
  fmt::print("context        {} tokens\n", FormatTokens(shape.context_train));
  const RopeScaling& scaling = shape.rope_scaling;
  fmt::print("rope           base {}, {} dims{}\n", shape.rope_base, shape.rope_dims,
             scaling.kind == RopeScaling::Kind::kNone
                 ? ""
                 : fmt::format(", {} scaling by {}", ScalingName(scaling.kind), scaling.factor));
}

void PrintKv(const Hyperparameters& shape) {
  const uint64_t swa = SwaLayers(shape);
  fmt::print("\nf16 KV cache   {} per token{}\n",
             FormatBytes(LayerTokenBytes(shape) * (shape.layers - swa)),
             swa == 0 ? ""
                      : fmt::format(" and at most {} in sliding-window layers",
                                    FormatBytes(LayerTokenBytes(shape) * swa * shape.swa_window)));
  Table table({{"CONTEXT", Align::kRight}, {"KV BYTES", Align::kRight}});
  for (const uint32_t tokens : Contexts(shape)) {
    table.AddRow({FormatTokens(tokens), FormatBytes(KvBytes(shape, tokens))});
  }
  fmt::print("{}", table.Text());
}

void PrintFacts(const ModelFacts& facts) {
  const auto or_none = [](const std::string& text) { return text.empty() ? "not given" : text; };
  fmt::print("file           {} ({})\n", facts.file->path(), FormatBytes(facts.file->file_bytes()));
  fmt::print("architecture   {}\nname           {}\nlicence        {}\n",
             or_none(facts.architecture), or_none(facts.name), or_none(facts.licence));
  fmt::print("supported      {}\n", facts.unsupported.empty() ? "yes" : "no: " + facts.unsupported);
  fmt::print("parameters     {}\n", FormatCount(facts.weights.parameters));
  if (facts.shape) PrintShape(*facts.shape);
  fmt::print("tokenizer      {}, {}\n", or_none(facts.tokenizer),
             facts.has_chat_template ? "with a chat template" : "no chat template");
  fmt::print("\n");
  Table table({{"WEIGHTS"},
               {"TENSORS", Align::kRight},
               {"PARAMETERS", Align::kRight},
               {"BYTES", Align::kRight}});
  for (const WeightTypeShare& share : facts.weights.types) {
    table.AddRow({share.type, fmt::format("{}", share.tensors), FormatCount(share.parameters),
                  FormatBytes(share.bytes)});
  }
  fmt::print("{}", table.Text());
  if (facts.shape) PrintKv(*facts.shape);
}

Result<ExitStatus> Print(const std::string& model, OutputFormat format) {
  QEVICT_ASSIGN_OR_RETURN(const std::string path, ResolveModel(model));
  QEVICT_ASSIGN_OR_RETURN(const ModelFacts facts, ReadFacts(path));
  if (format == OutputFormat::kJson) {
    PrintFactsJson(facts);
  } else {
    PrintFacts(facts);
  }
  return facts.unsupported.empty() ? ExitStatus::kOk : ExitStatus::kUnsupported;
}

}  // namespace

void AddInfoCommand(CommandLine& line) {
  auto model = std::make_shared<std::string>();
  CLI::App* command =
      line.Add({"info", "Describe a model: shape, weights, KV bytes, and whether it runs",
                "  qevict info smollm2\n"
                "  qevict info ./model.gguf --json"},
               [model](OutputFormat format) { return Print(*model, format); });
  command->add_option("model", *model, "A GGUF file, or a name from `qevict models`")
      ->required()
      ->type_name("MODEL");
}

}  // namespace qevict::cli
