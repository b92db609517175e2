#include "model/model_runner.h"

#include <algorithm>
#include <vector>

#include "core/aligned_buffer.h"
#include "model/cpu_backend.h"
#include "model/graph.h"
#include "model/layer_products.h"
#include "model/weights.h"

namespace qevict {
namespace {

// Decode shapes are small and come back every step; prefill shapes are large and rarely vary.
constexpr uint32_t kSmallBatchRows = 16;
constexpr size_t kSmallGraphs = 8;

// Unpacks a layer's weights on ggml's own threads: a graph of one node.
class UnpackGraph {
 public:
  UnpackGraph(LayerProducts& products, const CpuBackend& cpu)
      : context_(ggml_init({2 * ggml_tensor_overhead() + ggml_graph_overhead_custom(1, false),
                            nullptr, /*no_alloc=*/true})),
        allocator_(NewGraphAllocator(cpu)),
        graph_(ggml_new_graph_custom(context_.get(), 1, /*grads=*/false)) {
    ggml_tensor* done = ggml_custom_4d(context_.get(), GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0,
                                       UnpackNode, GGML_N_TASKS_MAX, &products);
    ggml_build_forward_expand(graph_, done);
  }
  // Error kOutOfMemory.
  Status Allocate() {
    if (ggml_gallocr_alloc_graph(allocator_.get(), graph_)) return {};
    return Fail(ErrorCode::kOutOfMemory, "not enough memory to unpack weights");
  }
  ggml_cgraph* graph() const { return graph_; }

 private:
  static void UnpackNode(ggml_tensor* /*node*/, int thread, int threads, void* products) {
    static_cast<LayerProducts*>(products)->Unpack(size_t(thread), size_t(threads));
  }

  GgmlContextPtr context_;
  GraphAllocatorPtr allocator_;
  ggml_cgraph* graph_;
};

class GgmlModelRunner final : public ModelRunner {
 public:
  GgmlModelRunner(const Hyperparameters& hyperparameters, Attention& attention, CpuBackend cpu,
                  Weights weights, std::unique_ptr<LayerProducts> products)
      : hyperparameters_(hyperparameters),
        attention_(attention),
        cpu_(std::move(cpu)),
        weights_(std::move(weights)),
        products_(std::move(products)) {
    if (products_ != nullptr) unpack_graph_ = std::make_unique<UnpackGraph>(*products_, cpu_);
  }

  bool unpacks(size_t rows) const override {
    return products_ != nullptr && rows >= LayerProducts::kLeastRows;
  }

  Result<std::span<const float>> Run(const RunArgs& args) override {
    const uint32_t rows = uint32_t(args.tokens.size());
    if (unpacks(rows)) return PassByLayer(args, rows, nullptr);
    layer_logits_ = {};
    const BatchShape shape{rows, uint32_t(args.logit_rows.size())};
    QEVICT_ASSIGN_OR_RETURN(Graph * graph, GraphFor(shape));
    std::ranges::copy(args.tokens, graph->tokens());
    std::ranges::transform(args.positions, graph->positions(),
                           [](Position p) { return int32_t(p.value); });
    if (graph->logit_row_ids() != nullptr) {
      std::ranges::transform(args.logit_rows, graph->logit_row_ids(),
                             [](uint32_t row) { return int32_t(row); });
    }
    QEVICT_RETURN_IF_ERROR(Compute(graph->graph(), args.cancel));
    if (shape.logit_rows == 0) return std::span<const float>();
    return std::span<const float>(graph->logits(),
                                  size_t{shape.logit_rows} * hyperparameters_.vocab);
  }

  Result<std::span<const float>> RunByLayer(const RunArgs& args, uint32_t chunk_rows,
                                            LayerSteps& steps) override {
    return PassByLayer(args, chunk_rows, &steps);
  }

 private:
  // Rows [first, first + count) of those that pass.
  struct Chunk {
    uint32_t first = 0, count = 0;
  };

  // `steps` may be null.
  Result<std::span<const float>> PassByLayer(const RunArgs& args, uint32_t chunk_rows,
                                             LayerSteps* steps) {
    const uint32_t rows = uint32_t(args.tokens.size()), layers = hyperparameters_.layers;
    QEVICT_ASSIGN_OR_RETURN(
        const AlignedBuffer hidden,
        AlignedBuffer::Allocate(size_t{rows} * hyperparameters_.embedding * sizeof(float)));
    // The graphs of all layers are alike; one after another they use the same memory.
    const GraphAllocatorPtr allocator = NewGraphAllocator(cpu_);
    const size_t logits = args.logit_rows.size() * hyperparameters_.vocab;
    layer_logits_ = {};
    QEVICT_ASSIGN_OR_RETURN(layer_logits_, AlignedBuffer::Allocate(logits * sizeof(float)));
    for (uint32_t l = 0; l < layers; ++l) {
      if (steps != nullptr) QEVICT_RETURN_IF_ERROR(steps->BeginLayer(LayerId(l)));
      if (unpacks(rows)) QEVICT_RETURN_IF_ERROR(UnpackLayer(l, args));
      for (uint32_t first = 0; first < rows; first += chunk_rows) {
        const Chunk chunk{first, std::min(chunk_rows, rows - first)};
        if (steps != nullptr)
          QEVICT_RETURN_IF_ERROR(steps->BeginChunk(LayerId(l), chunk.first, chunk.count));
        QEVICT_RETURN_IF_ERROR(PassChunk(args, l, chunk, allocator.get(), hidden.as<float>()));
      }
      if (unpacks(rows)) QEVICT_RETURN_IF_ERROR(products_->TakeStatus());
      if (steps != nullptr) steps->EndLayer(LayerId(l));
    }
    return std::span<const float>(layer_logits_.as<float>(), logits);
  }

  Status UnpackLayer(uint32_t l, const RunArgs& args) {
    const LayerWeights& layer = weights_.layers[l];
    // Behind the last attention only rows that give logits go on.
    const bool all =
        l + 1 != hyperparameters_.layers || args.logit_rows.size() == args.tokens.size();
    const Linear* const every[] = {&layer.q,       &layer.k,    &layer.v,  &layer.attention_out,
                                   &layer.gate_up, &layer.gate, &layer.up, &layer.down};
    const std::span linears = std::span(every).first(all ? std::size(every) : 3);
    QEVICT_RETURN_IF_ERROR(products_->Load(linears));
    QEVICT_RETURN_IF_ERROR(unpack_graph_->Allocate());
    QEVICT_RETURN_IF_ERROR(Compute(unpack_graph_->graph(), args.cancel));
    for (const Linear* linear : linears) linear->ReleaseFilePages();
    return {};
  }

  Status PassChunk(const RunArgs& args, uint32_t l, Chunk chunk, ggml_gallocr* allocator,
                   float* hidden) {
    const bool last = l + 1 == hyperparameters_.layers;
    const auto logits_begin = std::ranges::lower_bound(args.logit_rows, chunk.first);
    const auto logits_end = std::ranges::lower_bound(args.logit_rows, chunk.first + chunk.count);
    const uint32_t logit_rows = last ? uint32_t(logits_end - logits_begin) : 0;
    if (unpacks(args.tokens.size())) QEVICT_RETURN_IF_ERROR(products_->PrepareRows(chunk.count));
    // The graph dies with this call, before the allocator.
    QEVICT_ASSIGN_OR_RETURN(
        const std::unique_ptr<Graph> graph,
        Graph::Build(parts(args.tokens.size()), allocator, {chunk.count, logit_rows, l, l + 1}));
    const size_t floats = size_t{chunk.count} * hyperparameters_.embedding;
    float* states = hidden + size_t{chunk.first} * hyperparameters_.embedding;
    if (l == 0) {
      std::ranges::copy(args.tokens.subspan(chunk.first, chunk.count), graph->tokens());
    } else {
      std::copy_n(states, floats, graph->hidden_in());
    }
    std::ranges::transform(args.positions.subspan(chunk.first, chunk.count), graph->positions(),
                           [](Position p) { return int32_t(p.value); });
    if (graph->logit_row_ids() != nullptr) {
      std::transform(logits_begin, logits_end, graph->logit_row_ids(),
                     [&chunk](uint32_t row) { return int32_t(row - chunk.first); });
    }
    QEVICT_RETURN_IF_ERROR(Compute(graph->graph(), args.cancel));
    if (!last) std::copy_n(graph->hidden_out(), floats, states);
    if (logit_rows != 0) {
      const size_t vocab = hyperparameters_.vocab;
      const size_t done = size_t(logits_begin - args.logit_rows.begin());
      std::copy_n(graph->logits(), logit_rows * vocab, layer_logits_.as<float>() + done * vocab);
    }
    return {};
  }

  Graph::Parts parts(size_t rows) const {
    return {hyperparameters_, weights_, attention_, unpacks(rows) ? products_.get() : nullptr};
  }

  Status Compute(ggml_cgraph* graph, const CancelFn* cancel) {
    const bool cancellable = cancel != nullptr && *cancel;
    cpu_.SetAbortCallback(cancellable ? Cancelled : nullptr, const_cast<CancelFn*>(cancel));
    switch (ggml_backend_graph_compute(cpu_.backend(), graph)) {
      case GGML_STATUS_SUCCESS:
        return {};
      case GGML_STATUS_ABORTED:
        return Fail(ErrorCode::kCancelled, "stopped before it was done");
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
    QEVICT_ASSIGN_OR_RETURN(std::unique_ptr<Graph> graph, Graph::Build(parts(0), cpu_, shape));
    return graphs.emplace_back(std::move(graph)).get();
  }

  const Hyperparameters& hyperparameters_;
  Attention& attention_;
  CpuBackend cpu_;
  Weights weights_;
  std::vector<std::unique_ptr<Graph>> small_graphs_, large_graphs_;
  std::unique_ptr<LayerProducts> products_;  // null: ggml does them all
  std::unique_ptr<UnpackGraph> unpack_graph_;
  AlignedBuffer layer_logits_;  // of the last run, when it passed layer by layer
};

}  // namespace

Result<std::unique_ptr<ModelRunner>> ModelRunner::Load(const GgufFile& file,
                                                       const Hyperparameters& hyperparameters,
                                                       Attention& attention,
                                                       const RunnerConfig& config) {
  QEVICT_ASSIGN_OR_RETURN(CpuBackend cpu, CpuBackend::Create(config.threads));
  QEVICT_ASSIGN_OR_RETURN(Weights weights, Weights::Load(file, hyperparameters, cpu, config));
  return std::make_unique<GgmlModelRunner>(hyperparameters, attention, std::move(cpu),
                                           std::move(weights),
                                           LayerProducts::Create(config.products, config.threads));
}

}  // namespace qevict
