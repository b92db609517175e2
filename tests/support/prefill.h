// The logits behind a prompt, as tests of engines ask for them.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "engine/engine.h"

namespace qevict::test {

inline std::vector<float> Prefill(Engine& engine, Sequence& sequence,
                                  std::span<const Token> tokens) {
  std::vector<float> logits;
  const Status status = engine.Prefill(sequence, tokens, &logits);
  if (!status) ADD_FAILURE() << status.error().message;
  return logits;
}

}  // namespace qevict::test
