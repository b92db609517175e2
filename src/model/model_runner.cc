#include "model/model_runner.h"

#include <algorithm>
#include <vector>

#include "core/aligned_buffer.h"
#include "model/cpu_backend.h"
#include "model/graph.h"
#include "model/weights.h"

namespace qevict {
namespace {

// Decode shapes are small and come back every step; prefill shapes are large and rarely vary.
constexpr uint32_t kSmallBatchRows = 16;
constexpr size_t kSmallGraphs = 8;

class GgmlModelRunner final : public ModelRunner {
 public:
  GgmlModelRunner(const Hyperparameters& hyperparameters, Attention& attention, CpuBackend cpu,
                  Weights weights)
      : hyperparameters_(hyperparameters),
        attention_(attention),
        cpu_(std::move(cpu)),
        weights_(std::move(weights)) {}

  Result<std::span<const float>> Run(const RunArgs& args) override {
    const BatchShape shape{uint32_t(args.tokens.size()), uint32_t(args.logit_rows.size())};
    QEVICT_ASSIGN_OR_RETURN(Graph * graph, GraphFor(shape));
    std::ranges::copy(args.tokens, graph->tokens());
    std::ranges::transform(args.positions, graph->positions(),
                           [](Position p) { return int32_t(p.value); });
    if (graph->logit_row_ids() != nullptr) {
      std::ranges::transform(args.logit_rows, graph->logit_row_ids(),
                             [](uint32_t row) { return int32_t(row); });
    }
    QEVICT_RETURN_IF_ERROR(Compute(*graph, args.cancel));
    if (shape.logit_rows == 0) return std::span<const float>();
    return std::span<const float>(graph->logits(),
                                  size_t{shape.logit_rows} * hyperparameters_.vocab);
  }

  Result<std::span<const float>> RunByLayer(const RunArgs& args, uint32_t chunk_rows,
                                            LayerSteps& steps) override {
    const uint32_t rows = uint32_t(args.tokens.size()), layers = hyperparameters_.layers;
    const size_t width = hyperparameters_.embedding;
    QEVICT_ASSIGN_OR_RETURN(const AlignedBuffer hidden,
                            AlignedBuffer::Allocate(size_t{rows} * width * sizeof(float)));
    // The graphs of all layers are alike; one after another they use the same memory.
    const GraphAllocatorPtr allocator = NewGraphAllocator(cpu_);
    for (uint32_t l = 0; l < layers; ++l) {
      QEVICT_RETURN_IF_ERROR(steps.BeginLayer(LayerId(l)));
      for (uint32_t first = 0; first < rows; first += chunk_rows) {
        const uint32_t count = std::min(chunk_rows, rows - first);
        const bool last = l + 1 == layers && first + count == rows;
        QEVICT_RETURN_IF_ERROR(steps.BeginChunk(LayerId(l), first, count));
        QEVICT_ASSIGN_OR_RETURN(
            layer_graph_,
            Graph::Build(parts(), allocator.get(),
                         {count, last ? uint32_t(args.logit_rows.size()) : 0, l, l + 1}));
        Graph& graph = *layer_graph_;
        float* states = hidden.as<float>() + first * width;
        if (l == 0) {
          std::ranges::copy(args.tokens.subspan(first, count), graph.tokens());
        } else {
          std::copy_n(states, count * width, graph.hidden_in());
        }
        std::ranges::transform(args.positions.subspan(first, count), graph.positions(),
                               [](Position p) { return int32_t(p.value); });
        if (graph.logit_row_ids() != nullptr) *graph.logit_row_ids() = int32_t(count) - 1;
        QEVICT_RETURN_IF_ERROR(Compute(graph, args.cancel));
        if (l + 1 != layers) std::copy_n(graph.hidden_out(), count * width, states);
        if (last && !args.logit_rows.empty()) {
          layer_logits_.assign(graph.logits(), graph.logits() + hyperparameters_.vocab);
        }
        layer_graph_.reset();
      }
      steps.EndLayer(LayerId(l));
    }
    if (args.logit_rows.empty()) return std::span<const float>();
    return std::span<const float>(layer_logits_);
  }

 private:
  Graph::Parts parts() const { return {hyperparameters_, weights_, attention_}; }

  Status Compute(const Graph& graph, const CancelFn* cancel) {
    const bool cancellable = cancel != nullptr && *cancel;
    cpu_.SetAbortCallback(cancellable ? Cancelled : nullptr, const_cast<CancelFn*>(cancel));
    switch (ggml_backend_graph_compute(cpu_.backend(), graph.graph())) {
      case GGML_STATUS_SUCCESS:
        return {};
      case GGML_STATUS_ABORTED:
        return Fail(ErrorCode::kCancelled, "cancelled");
      case GGML_STATUS_ALLOC_FAILED:
        return Fail(ErrorCode::kOutOfMemory,
                    "not enough memory for ggml's work buffer; lower --chunk");
      default:
        return Fail(ErrorCode::kInternal, "ggml failed to compute the graph");
    }
  }

  static bool Cancelled(void* cancel) { return (*static_cast<const CancelFn*>(cancel))(); }

  Result<Graph*> GraphFor(BatchShape shape) {
    const bool small = shape.rows <= kSmallBatchRows;
    std::vector<std::unique_ptr<Graph>>& graphs = small ? small_graphs_ : large_graphs_;
    const auto found =
        std::ranges::find(graphs, shape, [](const auto& graph) { return graph->shape(); });
    if (found != graphs.end()) return found->get();
    if (graphs.size() >= (small ? kSmallGraphs : 1)) graphs.erase(graphs.begin());
    QEVICT_ASSIGN_OR_RETURN(std::unique_ptr<Graph> graph, Graph::Build(parts(), cpu_, shape));
    return graphs.emplace_back(std::move(graph)).get();
  }

  const Hyperparameters& hyperparameters_;
  Attention& attention_;
  CpuBackend cpu_;
  Weights weights_;
  std::vector<std::unique_ptr<Graph>> small_graphs_, large_graphs_;
  std::unique_ptr<Graph> layer_graph_;
  std::vector<float> layer_logits_;
};

}  // namespace

Result<std::unique_ptr<ModelRunner>> ModelRunner::Load(const GgufFile& file,
                                                       const Hyperparameters& hyperparameters,
                                                       Attention& attention, uint32_t threads) {
  QEVICT_ASSIGN_OR_RETURN(CpuBackend cpu, CpuBackend::Create(threads));
  QEVICT_ASSIGN_OR_RETURN(Weights weights, Weights::Load(file, hyperparameters, cpu));
  return std::make_unique<GgmlModelRunner>(hyperparameters, attention, std::move(cpu),
                                           std::move(weights));
}

}  // namespace qevict
