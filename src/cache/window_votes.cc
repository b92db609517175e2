#include "cache/window_votes.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "cache/grow_room.h"
#include "core/check.h"
#include "kernels/f16.h"

namespace qevict {
namespace {

// Keys of one kernel call, about: its columns should stay in the second-level cache.
constexpr uint32_t kCallTokens = 1024;

}  // namespace

WindowVotes::WindowVotes(const KvShape& shape, Isa isa)
    : shape_(shape), attend_prefill_(SelectVariant(AttendPrefillVariants(), isa)) {}

Status WindowVotes::Prepare(const Geometry& geometry) {
  const auto same = [&](const Columns& columns) {
    return columns.omega == geometry.omega && columns.sinks == geometry.sinks;
  };
  if (std::ranges::any_of(columns_, same)) return {};
  const uint32_t head_dim = shape_.head_dim, omega = geometry.omega;
  constexpr uint32_t kBlock = kKeyBlockTokens;
  Columns columns{.omega = omega, .sinks = geometry.sinks, .values = {}};
  columns.windows = std::clamp(kCallTokens / omega / kBlock * kBlock, kBlock, head_dim);
  const uint32_t phase = geometry.sinks % kBlock;
  const size_t slots = WholeKeyBlocks(phase + columns.windows * omega);
  QEVICT_ASSIGN_OR_RETURN(columns.values, AlignedBuffer::Allocate(slots * head_dim * sizeof(F16)));
  for (uint32_t t = 0; t < columns.windows * omega; ++t) {
    columns.values.as<F16>()[ValueOffset(phase + t, t / omega, head_dim)] = F32ToF16(1.0f);
  }
  columns_.push_back(std::move(columns));
  return {};
}

void WindowVotes::Reserve(size_t rows, size_t codes, Scratch& scratch) const {
  GrowRoom(scratch.m, rows);
  GrowRoom(scratch.d, rows);
  GrowRoom(scratch.o, rows * shape_.head_dim);
  GrowRoom(scratch.row_begin, rows);
  GrowRoom(scratch.row_end, rows);
  GrowRoom(scratch.sums,
           std::max<size_t>(codes, shape_.head_dim));  // a call's columns, or all codes
}

const WindowVotes::Columns& WindowVotes::ColumnsOf(const Geometry& geometry) const {
  const auto found = std::ranges::find_if(columns_, [&](const Columns& columns) {
    return columns.omega == geometry.omega && columns.sinks == geometry.sinks;
  });
  QEVICT_CHECK(found != columns_.end());
  return *found;
}

void WindowVotes::Add(const Args& args, const Rows& rows, Scratch& scratch) const {
  const uint32_t group = shape_.group;
  std::fill_n(scratch.sums.begin(), rows.windows, MassUnits{0});
  for (uint32_t t = 0; t < args.tokens; ++t) {
    float* token = rows.rows + size_t{t} * group * rows.stride;
    for (uint32_t g = 0; g < group; ++g) {
      const uint32_t r = t * group + g;
      const float share = args.d[r] > 0.0f ? std::exp(rows.m[r] - args.m[r]) / args.d[r] : 0.0f;
      float* row = token + g * rows.stride;
      for (uint32_t w = 0; w < rows.windows; ++w) row[w] *= share;
    }
    ReduceGroup(args.group, group, rows.windows, token, rows.stride);
    for (uint32_t w = 0; w < rows.windows; ++w) scratch.sums[w] += ToMassUnits(token[w]);
  }
  for (uint32_t w = 0; w < rows.windows; ++w) {
    if (scratch.sums[w] == 0) continue;
    std::atomic_ref(rows.masses[w]).fetch_add(scratch.sums[w], std::memory_order_relaxed);
  }
}

void WindowVotes::Count(const Args& args, Scratch& scratch) const {
  const Columns& columns = ColumnsOf(args.geometry);
  const uint32_t omega = args.geometry.omega, sinks = args.geometry.sinks;
  const size_t rows = size_t{args.tokens} * shape_.group, head_dim = shape_.head_dim;
  const AttentionState state{scratch.m.data(), scratch.d.data(), scratch.o.data()};
  const uint32_t end_cell = args.first_cell + args.tokens;
  for (uint32_t place = 0; sinks + place * omega < end_cell; place += columns.windows) {
    // Blocks are counted anew from the one that the range begins in.
    const uint32_t first = sinks + place * omega;
    const uint32_t base = first / kKeyBlockTokens * kKeyBlockTokens;
    const uint32_t end = std::min(end_cell, first + columns.windows * omega);
    for (size_t r = 0; r < rows; ++r) {
      const uint32_t seen = args.first_cell + uint32_t(r / shape_.group) + 1;
      scratch.row_begin[r] = first - base;
      scratch.row_end[r] = std::max(first, std::min(end, seen)) - base;
    }
    ResetState(state, rows, head_dim);
    KvView keys{.v = columns.values.as<F16>(), .slots = end - base};
    if (args.kv.k != nullptr) {
      keys.k = args.kv.k + KeyOffset(base, 0, head_dim);
    } else {
      keys.k8 = {args.kv.k8.codes + KeyOffset(base, 0, head_dim),
                 args.kv.k8.scales + ScaleOffset(base, 0, head_dim)};
    }
    attend_prefill_({.rows = rows,
                     .head_dim = head_dim,
                     .q = args.q,
                     .kv = keys,
                     .begin = first - base,
                     .end = end - base,
                     .row_begin = scratch.row_begin.data(),
                     .row_end = scratch.row_end.data(),
                     .state = state,
                     .scratch = args.tiles});
    const uint32_t windows = (end - first + omega - 1) / omega;
    Add(args,
        {.rows = scratch.o.data(),
         .stride = head_dim,
         .m = scratch.m.data(),
         .windows = windows,
         .masses = args.masses.subspan(place, windows)},
        scratch);
  }
}

}  // namespace qevict
