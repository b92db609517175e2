// What a block of a prompt's query tokens gives to the windows of the full tier: the column sums of
// their attention matrix, by window.
//
// The attention kernel is asked once more, with columns that say which window a key belongs to in
// place of the values: o[r, w] = sum_{t in w} exp(s[r, t] - m[r]). That costs what the attention of
// the voting tokens costs in f32, at the speed of the fastest kernel, and no score is kept: all of
// a prompt votes at the price of its attention, or of about 1.6 times that where the prompt itself
// is attended in bf16 (docs/decisions/0008-products-of-prompts.md has both rates): votes never are.
#pragma once

#include <span>
#include <vector>

#include "cache/kv_shape.h"
#include "cache/window_mass.h"
#include "core/aligned_buffer.h"
#include "core/geometry.h"
#include "core/isa.h"
#include "kernels/attend_prefill/attend_prefill.h"

namespace qevict {

class WindowVotes {
 public:
  // A thread's own working room.
  struct Scratch {
    std::vector<float> m, d, o;
    std::vector<uint32_t> row_begin, row_end;
    std::vector<MassUnits> sums;
  };
  struct Args {
    Geometry geometry;
    GroupMass group = GroupMass::kMean;
    KvView kv;                 // slots are cells: sinks, windows by place, the open window
    uint32_t first_cell = 0;   // of the first token; the next tokens follow
    uint32_t tokens = 0;       // tokens * group <= kPrefillMaxRows
    const float* q = nullptr;  // [tokens, group, head_dim], already scaled by the softmax scale
    // [tokens, group]: m and d of the whole softmax, over all tiers.
    const float *m = nullptr, *d = nullptr;
    std::span<MassUnits> masses;  // by place; added to, by several threads at a time
    float* tiles = nullptr;       // as attend_prefill.h wants it
  };

  WindowVotes(const KvShape& shape, Isa isa);
  // Makes the columns of a geometry. Error kOutOfMemory; throws std::bad_alloc. Not while votes are
  // counted.
  Status Prepare(const Geometry& geometry);
  // Room for blocks of `rows` query rows and a head of so many codes; Count and Add then allocate
  // nothing. Throws std::bad_alloc.
  void Reserve(size_t rows, size_t codes, Scratch& scratch) const;
  void Count(const Args& args, Scratch& scratch) const;

  // What each token's group gives, added to `masses`, by several threads at a time. rows: [tokens,
  // group, windows], the row r of which counts exp(m[r] - args.m[r]) / args.d[r]; overwritten.
  struct Rows {
    float* rows = nullptr;
    size_t stride = 0;
    const float* m = nullptr;
    uint32_t windows = 0;
    std::span<MassUnits> masses;  // [windows]
  };
  void Add(const Args& args, const Rows& rows, Scratch& scratch) const;

 private:
  // Values that are 1 where a key belongs to the column's window.
  struct Columns {
    uint32_t omega = 0, sinks = 0;
    uint32_t windows = 0;  // of one call; their tokens are a multiple of a block
    AlignedBuffer values;  // [slots of a call in whole blocks, head_dim]
  };
  const Columns& ColumnsOf(const Geometry& geometry) const;

  KvShape shape_;
  AttendPrefillFn attend_prefill_;
  std::vector<Columns> columns_;  // of the geometries that were prepared: one, as a rule
};

}  // namespace qevict
