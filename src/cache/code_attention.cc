#include "cache/code_attention.h"

#include <algorithm>
#include <cmath>

#include "cache/grow_room.h"

namespace qevict {
namespace {

// Tokens of one kernel call: bounds the room for biases.
constexpr uint32_t kCallTokens = 2048;

uint32_t CallWindows(uint32_t omega) { return std::max(1u, kCallTokens / omega); }

}  // namespace

CodeAttention::CodeAttention(const KvShape& shape, Isa isa)
    : head_dim_(shape.head_dim),
      attend_codes_(SelectVariant(AttendCodesVariants(), isa)),
      dot_rows_(SelectVariant(DotRowsVariants(), isa)) {}

void CodeAttention::Reserve(size_t rows, const HeadWindows& windows, Scratch& scratch) const {
  const size_t call = std::min<size_t>(windows.attended().size(), CallWindows(windows.omega()));
  GrowRoom(scratch.q, rows * head_dim_);
  GrowRoom(scratch.q_scale, rows);
  GrowRoom(scratch.mean_queries, rows * head_dim_);
  GrowRoom(scratch.bias, rows * call);
  GrowRoom(scratch.m_before, rows);
  scratch.turns.reserve(call);
  scratch.bias_of_window.reserve(call);
}

void CodeAttention::PrepareBias(const Args& args, uint32_t first, uint32_t last,
                                Scratch& scratch) const {
  const WindowCodec& codec = args.windows->codec();
  // Neighbours share a block as long as nothing between them was evicted.
  scratch.turns.clear();
  scratch.bias_of_window.clear();
  size_t block = SIZE_MAX;
  for (const WindowRecord& record : args.windows->attended().subspan(first, last - first)) {
    const size_t its_block = codec.BiasBlockOf(record.window);
    if (its_block != block) scratch.turns.push_back(codec.turns().row(its_block));
    block = its_block;
    scratch.bias_of_window.push_back(uint32_t(scratch.turns.size()) - 1);
  }
  dot_rows_({.rows = args.rows,
             .columns = scratch.turns.size(),
             .depth = head_dim_,
             .a = scratch.mean_queries.data(),
             .b = scratch.turns.data(),
             .out = scratch.bias.data(),
             .out_stride = scratch.turns.size()});
}

void CodeAttention::TurnQueries(const HeadWindows& windows, size_t rows, const float* q,
                                Scratch& scratch) const {
  const HeadCodec& codec = windows.head_codec();
  const RopePairs& pairs = windows.codec().turns().pairs();
  for (size_t r = 0; r < rows; ++r) {
    const float* from = q + r * head_dim_;
    scratch.q_scale[r] = codec.TransformQuery(from, scratch.q.data() + r * head_dim_);
    TurnBack(pairs, codec.tables().mean.data(), from, scratch.mean_queries.data() + r * head_dim_);
  }
}

void CodeAttention::TurnValuesBack(const HeadWindows& windows, size_t rows, float* o) const {
  const HeadCodec& codec = windows.head_codec();
  for (size_t r = 0; r < rows; ++r) codec.FinishValues(o + r * head_dim_);
}

void CodeAttention::Attend(const Args& args, Scratch& scratch) const {
  ResetState(args.state, args.rows, head_dim_);
  const uint32_t omega = args.windows->omega();
  const uint32_t call_windows = CallWindows(omega);
  for (uint32_t first = args.first; first < args.last; first += call_windows) {
    const uint32_t last = std::min(args.last, first + call_windows);
    PrepareBias(args, first, last, scratch);
    std::copy_n(args.state.m, args.rows, scratch.m_before.begin());
    attend_codes_({.rows = args.rows,
                   .format = args.windows->format(),
                   .q = scratch.q.data(),
                   .q_scale = scratch.q_scale.data(),
                   .pages = args.windows->pages(),
                   .begin = size_t{first} * omega,
                   .end = size_t{last} * omega,
                   .omega = omega,
                   .bias = scratch.bias.data(),
                   .bias_stride = scratch.turns.size(),
                   .bias_of_window = scratch.bias_of_window.data(),
                   .state = args.state,
                   .masses = args.masses == nullptr ? nullptr : args.masses + (first - args.first),
                   .mass_stride = args.mass_stride});
    for (size_t r = 0; args.masses != nullptr && first != args.first && r < args.rows; ++r) {
      const float rescale = std::exp(scratch.m_before[r] - args.state.m[r]);
      float* before = args.masses + r * args.mass_stride;
      for (uint32_t w = 0; rescale != 1.0f && w < first - args.first; ++w) before[w] *= rescale;
    }
  }
}

}  // namespace qevict
