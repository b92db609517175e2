// Who multiplies with the weights, and how exactly.
#pragma once

#include <string_view>

namespace qevict {

enum class Products {
  // Our own kernel for blocks of 4 to 8 bits; the rest by oneDNN in long prompts, in the best type
  // that the CPU multiplies, else by ggml. Attention of prompts in bf16 where the CPU has it.
  kFastest,
  // ggml throughout; attention in f32.
  kGgml,
  // All in f32, from weights that are unpacked when the model is loaded (4 bytes each): to measure
  // without the rounding of activations that the others do.
  kFloat32,
};

constexpr std::string_view ProductsName(Products products) {
  switch (products) {
    case Products::kFastest:
      return "auto";
    case Products::kGgml:
      return "ggml";
    case Products::kFloat32:
      return "f32";
  }
  return "";
}

}  // namespace qevict
