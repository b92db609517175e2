// Without oneDNN ggml does every product.
#include "model/layer_products.h"

namespace qevict {

std::unique_ptr<LayerProducts> LayerProducts::Create(Products /*products*/, uint32_t /*threads*/) {
  return nullptr;
}
std::string LayerProducts::Describe(Products /*products*/) { return "ggml"; }

}  // namespace qevict
