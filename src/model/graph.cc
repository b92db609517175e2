#include "model/graph.h"

#include <cmath>

namespace qevict {
namespace {

constexpr size_t kNodesPerLayer = 40;  // an upper bound over all families
constexpr size_t kNodesOutside = 32;

// [head_dim, heads, rows]
RowsView Rows(const ggml_tensor* tensor) {
  return {static_cast<const float*>(tensor->data), tensor->nb[2] / sizeof(float)};
}

// What ggml_rope_ext needs besides the tensors, by libllama's rules (llama_context's constructor):
// ggml's rope corrects YaRN's magnitude itself, so the factor that undoes this is passed down.
struct RopeParameters {
  float base, frequency_scale, extrapolation, attention_factor;
};

RopeParameters RopeOf(const Hyperparameters& h, uint32_t layer) {
  const RopeScaling& scaling = h.rope_scaling;
  RopeParameters rope{h.is_swa(layer) ? h.rope_base_swa : h.rope_base, 1.0f, 0.0f,
                      scaling.attention_factor};
  const bool yarn = scaling.kind == RopeScaling::Kind::kYarn;
  if (scaling.kind != RopeScaling::Kind::kNone && !h.is_swa(layer))
    rope.frequency_scale = 1.0f / scaling.factor;
  rope.extrapolation =
      scaling.yarn_ext_factor >= 0.0f ? scaling.yarn_ext_factor : (yarn ? 1.0f : 0.0f);
  if (rope.extrapolation != 0.0f) {
    const float magnitude = scaling.factor <= 1.0f ? 1.0f : 0.1f * std::log(scaling.factor) + 1.0f;
    rope.attention_factor *= magnitude / (1.0f + 0.1f * std::log(scaling.factor));
  }
  return rope;
}

}  // namespace

class GraphBuilder {
 public:
  GraphBuilder(const Graph::Parts& parts, Graph& graph)
      : h_(parts.hyperparameters),
        weights_(parts.weights),
        products_(parts.products),
        graph_(graph),
        context_(graph.context_.get()) {}

  void Build() {
    const int64_t rows = graph_.shape_.rows, logit_rows = graph_.shape_.logit_rows;
    const uint32_t first = graph_.shape_.first_layer;
    const uint32_t last = graph_.shape_.last_layer == 0 ? h_.layers : graph_.shape_.last_layer;
    graph_.positions_ = Input(rows, "positions");
    if (logit_rows != 0 && logit_rows != rows)
      graph_.logit_row_ids_ = Input(logit_rows, "logit_row_ids");

    ggml_tensor* x = first == 0 ? Embed(rows) : HiddenInput(rows);
    for (uint32_t l = first; l < last; ++l) {
      const LayerWeights& layer = weights_.layers[l];
      ggml_tensor* attended = AttentionBlock(l, x);
      if (l + 1 == h_.layers) {
        // Nothing after the last attention mixes rows, so only rows that give logits go on.
        if (logit_rows == 0) {
          ggml_build_forward_expand(graph_.graph_, attended);
          return;
        }
        if (graph_.logit_row_ids_ != nullptr) {
          attended = ggml_get_rows(context_, attended, graph_.logit_row_ids_);
          x = ggml_get_rows(context_, x, graph_.logit_row_ids_);
        }
      }
      attended = Multiply(layer.attention_out, attended);
      if (layer.attention_post_norm != nullptr)
        attended = Norm(attended, layer.attention_post_norm);
      x = ggml_add(context_, attended, x);
      x = ggml_add(context_, FeedForward(layer, x), x);
    }
    if (last != h_.layers) {
      ggml_set_output(x);
      graph_.hidden_out_ = x;
      ggml_build_forward_expand(graph_.graph_, x);
      return;
    }
    x = weights_.output.Apply(context_, Norm(x, weights_.output_norm));
    if (h_.final_logit_softcap != 0.0f) {
      x = ggml_scale(context_, x, 1.0f / h_.final_logit_softcap);
      x = ggml_scale(context_, ggml_tanh(context_, x), h_.final_logit_softcap);
    }
    ggml_set_output(x);
    graph_.logits_ = x;
    ggml_build_forward_expand(graph_.graph_, x);
  }

 private:
  ggml_tensor* Input(int64_t length, const char* name) {
    ggml_tensor* tensor = ggml_new_tensor_1d(context_, GGML_TYPE_I32, length);
    ggml_set_name(tensor, name);
    ggml_set_input(tensor);
    // Alone it would not be part of the graph when no node reads it, and would get no memory.
    ggml_build_forward_expand(graph_.graph_, tensor);
    return tensor;
  }

  ggml_tensor* Embed(int64_t rows) {
    graph_.tokens_ = Input(rows, "tokens");
    ggml_tensor* x = ggml_get_rows(context_, weights_.token_embedding, graph_.tokens_);
    return h_.embedding_scale == 1.0f ? x : ggml_scale(context_, x, h_.embedding_scale);
  }

  ggml_tensor* HiddenInput(int64_t rows) {
    graph_.hidden_in_ = ggml_new_tensor_2d(context_, GGML_TYPE_F32, h_.embedding, rows);
    ggml_set_input(graph_.hidden_in_);
    return graph_.hidden_in_;
  }

  ggml_tensor* Multiply(const Linear& linear, ggml_tensor* x) {
    // After the last attention a few rows may be all that is left.
    RowProduct* product =
        products_ == nullptr || x->ne[1] != graph_.shape_.rows ? nullptr : products_->Find(linear);
    return product == nullptr ? linear.Apply(context_, x)
                              : linear.ApplyProduct(context_, *product, x);
  }

  ggml_tensor* Norm(ggml_tensor* x, ggml_tensor* weight) {
    return ggml_mul(context_, ggml_rms_norm(context_, x, h_.rms_epsilon), weight);
  }

  // [head_dim * heads, rows] -> [head_dim, heads, rows], normed and rotated.
  ggml_tensor* NormAndRotate(ggml_tensor* x, uint32_t heads, ggml_tensor* norm, uint32_t layer) {
    x = ggml_reshape_3d(context_, x, h_.head_dim, heads, x->ne[1]);
    if (norm != nullptr) x = Norm(x, norm);
    const RopeParameters rope = RopeOf(h_, layer);
    const int mode =
        h_.rope_layout == RopeLayout::kHalves ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL;
    return ggml_rope_ext(context_, x, graph_.positions_, weights_.rope_factors, int(h_.rope_dims),
                         mode, int(h_.rope_scaling.original_context), rope.base,
                         rope.frequency_scale, rope.extrapolation, rope.attention_factor,
                         h_.rope_scaling.yarn_beta_fast, h_.rope_scaling.yarn_beta_slow);
  }

  // Norm, projections, RoPE, store, attend: [embedding, rows] -> [head_dim * heads, rows].
  ggml_tensor* AttentionBlock(uint32_t l, ggml_tensor* x) {
    const LayerWeights& layer = weights_.layers[l];
    ggml_tensor* normed = Norm(x, layer.attention_norm);
    ggml_tensor* q = NormAndRotate(Multiply(layer.q, normed), h_.heads, layer.q_norm, l);
    ggml_tensor* k = NormAndRotate(Multiply(layer.k, normed), h_.kv_heads, layer.k_norm, l);
    ggml_tensor* v = Multiply(layer.v, normed);
    v = ggml_reshape_3d(context_, v, h_.head_dim, h_.kv_heads, v->ne[1]);
    // The order of Store before Attend is the data dependency of the second node on the first.
    Graph::LayerCall* call = &graph_.calls_[l];
    ggml_tensor* store_inputs[] = {k, v};
    ggml_tensor* stored = ggml_custom_4d(context_, GGML_TYPE_F32, 1, 1, 1, 1, store_inputs, 2,
                                         StoreNode, GGML_N_TASKS_MAX, call);
    ggml_tensor* attend_inputs[] = {q, stored};
    return ggml_custom_4d(context_, GGML_TYPE_F32, int64_t{h_.head_dim} * h_.heads, x->ne[1], 1, 1,
                          attend_inputs, 2, AttendNode, GGML_N_TASKS_MAX, call);
  }

  ggml_tensor* FeedForward(const LayerWeights& layer, ggml_tensor* x) {
    ggml_tensor* normed = Norm(x, layer.feed_forward_norm);
    const bool gelu = h_.activation == Activation::kGelu;
    ggml_tensor* hidden;
    if (layer.gate_up) {
      ggml_tensor* both = Multiply(layer.gate_up, normed);
      hidden = gelu ? ggml_geglu(context_, both) : ggml_swiglu(context_, both);
    } else {
      ggml_tensor* gate = Multiply(layer.gate, normed);
      ggml_tensor* up = Multiply(layer.up, normed);
      hidden = gelu ? ggml_geglu_split(context_, gate, up) : ggml_swiglu_split(context_, gate, up);
    }
    ggml_tensor* y = Multiply(layer.down, hidden);
    return layer.feed_forward_post_norm == nullptr ? y : Norm(y, layer.feed_forward_post_norm);
  }

  static void StoreNode(ggml_tensor* node, int thread, int threads, void* context) {
    const auto* call = static_cast<const Graph::LayerCall*>(context);
    call->attention->Store(call->layer, Rows(node->src[0]), Rows(node->src[1]), size_t(thread),
                           size_t(threads));
  }
  static void AttendNode(ggml_tensor* node, int thread, int threads, void* context) {
    const auto* call = static_cast<const Graph::LayerCall*>(context);
    call->attention->Attend(call->layer, Rows(node->src[0]), static_cast<float*>(node->data),
                            size_t(thread), size_t(threads));
  }

  const Hyperparameters& h_;
  const Weights& weights_;
  LayerProducts* products_;
  Graph& graph_;
  ggml_context* context_;
};

GraphAllocatorPtr NewGraphAllocator(const CpuBackend& cpu) {
  return GraphAllocatorPtr(ggml_gallocr_new(ggml_backend_get_default_buffer_type(cpu.backend())));
}

Result<std::unique_ptr<Graph>> Graph::Build(const Parts& parts, ggml_gallocr* allocator,
                                            BatchShape shape) {
  std::unique_ptr<Graph> graph(new Graph);
  graph->shape_ = shape;
  const Hyperparameters& h = parts.hyperparameters;
  const uint32_t layers = shape.last_layer == 0 ? h.layers : shape.last_layer - shape.first_layer;
  const size_t nodes = layers * kNodesPerLayer + kNodesOutside;
  const size_t bytes =
      nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(nodes, /*grads=*/false);
  graph->context_.reset(ggml_init({bytes, nullptr, /*no_alloc=*/true}));
  graph->graph_ = ggml_new_graph_custom(graph->context_.get(), nodes, /*grads=*/false);
  for (uint32_t l = 0; l < h.layers; ++l) graph->calls_.push_back({&parts.attention, LayerId(l)});
  GraphBuilder(parts, *graph).Build();
  if (!ggml_gallocr_alloc_graph(allocator, graph->graph_)) {
    return Fail(ErrorCode::kOutOfMemory, "not enough memory for a batch of " +
                                             std::to_string(shape.rows) + " tokens; lower --chunk");
  }
  return graph;
}

Result<std::unique_ptr<Graph>> Graph::Build(const Parts& parts, const CpuBackend& cpu,
                                            BatchShape shape) {
  GraphAllocatorPtr allocator = NewGraphAllocator(cpu);
  QEVICT_ASSIGN_OR_RETURN(std::unique_ptr<Graph> graph, Build(parts, allocator.get(), shape));
  graph->allocator_ = std::move(allocator);
  return graph;
}

}  // namespace qevict
