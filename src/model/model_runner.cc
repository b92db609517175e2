#include "model/model_runner.h"

#include <algorithm>
#include <vector>

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
    const bool cancellable = args.cancel != nullptr && *args.cancel;
    cpu_.SetAbortCallback(cancellable ? Cancelled : nullptr, const_cast<CancelFn*>(args.cancel));
    switch (ggml_backend_graph_compute(cpu_.backend(), graph->graph())) {
      case GGML_STATUS_SUCCESS:
        break;
      case GGML_STATUS_ABORTED:
        return Fail(ErrorCode::kCancelled, "cancelled");
      case GGML_STATUS_ALLOC_FAILED:
        return Fail(ErrorCode::kOutOfMemory,
                    "not enough memory for ggml's work buffer; lower --chunk");
      default:
        return Fail(ErrorCode::kInternal, "ggml failed to compute the graph");
    }
    if (shape.logit_rows == 0) return std::span<const float>();
    return std::span<const float>(graph->logits(),
                                  size_t{shape.logit_rows} * hyperparameters_.vocab);
  }

 private:
  static bool Cancelled(void* cancel) { return (*static_cast<const CancelFn*>(cancel))(); }

  Result<Graph*> GraphFor(BatchShape shape) {
    const bool small = shape.rows <= kSmallBatchRows;
    std::vector<std::unique_ptr<Graph>>& graphs = small ? small_graphs_ : large_graphs_;
    const auto found =
        std::ranges::find(graphs, shape, [](const auto& graph) { return graph->shape(); });
    if (found != graphs.end()) return found->get();
    if (graphs.size() >= (small ? kSmallGraphs : 1)) graphs.erase(graphs.begin());
    QEVICT_ASSIGN_OR_RETURN(std::unique_ptr<Graph> graph,
                            Graph::Build(hyperparameters_, weights_, cpu_, attention_, shape));
    return graphs.emplace_back(std::move(graph)).get();
  }

  const Hyperparameters& hyperparameters_;
  Attention& attention_;
  CpuBackend cpu_;
  Weights weights_;
  std::vector<std::unique_ptr<Graph>> small_graphs_, large_graphs_;
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
