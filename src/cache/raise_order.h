// The order in which a budget with bytes to spare raises the bits of codes: heads with the largest
// values first, for keys and values, each side half of the bytes while both have heads to raise.
// docs/decisions/0006-bits-by-budget.md has the orders that were compared.
#pragma once

#include <vector>

#include "cache/cache_plan.h"
#include "cache/kv_shape.h"
#include "codec/window_codec.h"

namespace qevict {

// Every side of every (layer, KV head) that routing reviews, once.
std::vector<CodeRaise> RaiseOrder(const KvShape& shape, const WindowCodec& codec);

}  // namespace qevict
