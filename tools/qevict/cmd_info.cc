#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>

#include "cache/cache_plan.h"
#include "engine/engine.h"
#include "engine/model_catalog.h"
#include "model/gguf_scan.h"
#include "model/hyperparameters.h"
#include "model/validate_tensors.h"
#include "model/validate_tokenizer.h"
#include "model/weight_summary.h"
#include "tools/qevict/command.h"
#include "tools/qevict/json_output.h"
#include "tools/qevict/print.h"
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

// What `qevict run` allocates for f16 keys and values in its default steps, but for the rounding to
// whole pages. kSwa: of sliding-window layers alone.
enum class Layers { kAll, kSwa };
uint64_t KvBytes(const Hyperparameters& shape, uint32_t tokens, Layers which = Layers::kAll) {
  const KvShape kv = shape.kv_shape();
  uint64_t bytes = 0;
  for (uint32_t l = 0; l < kv.layers; ++l) {
    if (which == Layers::kAll || kv.is_swa(l))
      bytes += LayerBytes(kv, LayerId(l), tokens, EngineConfig().prefill_chunk);
  }
  return bytes;
}

// In layers that are not sliding-window, where every token takes room.
uint64_t TokenBytes(const Hyperparameters& shape) {
  return shape.kv_shape().layer_token_bytes() * (shape.layers - SwaLayers(shape));
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
  return {{"bytes_per_token", TokenBytes(shape)},
          {"swa_bytes", KvBytes(shape, shape.context_train, Layers::kSwa)},
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
  Print(stdout, "layers         {}\n", shape.layers);
  Print(stdout, "heads          {} query, {} KV, of {} channels\n", shape.heads, shape.kv_heads,
        shape.head_dim);
  if (shape.swa_window != 0) {
    Print(stdout, "               sliding window of {} tokens in {} layers\n",
          FormatTokens(shape.swa_window), SwaLayers(shape));
  }
  Print(stdout, "embedding      {}\nfeed-forward   {}\n", shape.embedding, shape.feed_forward);
  Print(stdout, "vocabulary     {} tokens\n", FormatTokens(shape.vocab));
  Print(stdout, "context        {} tokens\n", FormatTokens(shape.context_train));
  const RopeScaling& scaling = shape.rope_scaling;
  Print(stdout, "rope           base {}, {} dims{}\n", shape.rope_base, shape.rope_dims,
        scaling.kind == RopeScaling::Kind::kNone
            ? ""
            : fmt::format(", {} scaling by {}", ScalingName(scaling.kind), scaling.factor));
}

void PrintKv(const Hyperparameters& shape) {
  const uint64_t swa_bytes = KvBytes(shape, shape.context_train, Layers::kSwa);
  Print(stdout, "\nf16 KV cache   {} per token{}\n", FormatBytes(TokenBytes(shape)),
        swa_bytes == 0
            ? ""
            : fmt::format(" and at most {} in sliding-window layers", FormatBytes(swa_bytes)));
  Table table({{"CONTEXT", Align::kRight}, {"KV BYTES", Align::kRight}});
  for (const uint32_t tokens : Contexts(shape)) {
    table.AddRow({FormatTokens(tokens), FormatBytes(KvBytes(shape, tokens))});
  }
  Print(stdout, "{}", table.Text());
}

void PrintFacts(const ModelFacts& facts) {
  // The file may say anything, and a terminal obeys escape sequences.
  const auto shown = [](const std::string& text) {
    return text.empty() ? "not given" : Printable(text);
  };
  Print(stdout, "file           {} ({})\n", facts.file->path(),
        FormatBytes(facts.file->file_bytes()));
  Print(stdout, "architecture   {}\nname           {}\nlicence        {}\n",
        shown(facts.architecture), shown(facts.name), shown(facts.licence));
  Print(stdout, "supported      {}\n",
        facts.unsupported.empty() ? "yes" : "no: " + facts.unsupported);
  Print(stdout, "parameters     {}\n", FormatCount(facts.weights.parameters));
  if (facts.shape) PrintShape(*facts.shape);
  Print(stdout, "tokenizer      {}, {}\n", shown(facts.tokenizer),
        facts.has_chat_template ? "with a chat template" : "no chat template");
  Print(stdout, "\n");
  Table table({{"WEIGHTS"},
               {"TENSORS", Align::kRight},
               {"PARAMETERS", Align::kRight},
               {"BYTES", Align::kRight}});
  for (const WeightTypeShare& share : facts.weights.types) {
    table.AddRow({share.type, fmt::format("{}", share.tensors), FormatCount(share.parameters),
                  FormatBytes(share.bytes)});
  }
  Print(stdout, "{}", table.Text());
  if (facts.shape) PrintKv(*facts.shape);
}

Result<ExitStatus> Info(const std::string& model, OutputFormat format) {
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
               [model](OutputFormat format) { return Info(*model, format); });
  command->add_option("model", *model, "A GGUF file, or a name from `qevict models`")
      ->required()
      ->type_name("MODEL");
}

}  // namespace qevict::cli
