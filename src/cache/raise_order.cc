#include "cache/raise_order.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace qevict {

std::vector<CodeRaise> RaiseOrder(const KvShape& shape, const WindowCodec& codec) {
  std::vector<float> sizes;
  for (uint32_t l = 0; l < shape.layers; ++l) {
    if (shape.is_swa(l)) continue;
    for (uint32_t h = 0; h < shape.kv_heads; ++h)
      sizes.push_back(codec.tables(LayerId(l), KvHeadId(h)).value_scale);
  }
  std::vector<uint32_t> heads(sizes.size());
  std::iota(heads.begin(), heads.end(), 0u);
  std::ranges::stable_sort(heads, std::ranges::greater(),
                           [&sizes](uint32_t head) { return sizes[head]; });
  // A value goes from 2 bits to 4, a key from 3 to 4: two keys take the bytes of one value.
  constexpr size_t kKeysPerValue = 2;
  std::vector<CodeRaise> order;
  size_t keys = 0;
  for (size_t values = 0; values < heads.size(); ++values) {
    order.push_back({heads[values], CodeRaise::Side::kValue});
    for (; keys < std::min(heads.size(), (values + 1) * kKeysPerValue); ++keys)
      order.push_back({heads[keys], CodeRaise::Side::kKey});
  }
  return order;
}

}  // namespace qevict
