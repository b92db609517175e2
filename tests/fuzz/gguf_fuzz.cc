// libFuzzer target over everything that reads a GGUF file before weights are used. Build with clang
// and -DQEVICT_FUZZ=ON, then
//   build/fuzz/bin/gguf_fuzz_seeds CORPUS && build/fuzz/bin/gguf_fuzz -max_len=65536 CORPUS
#include <cstddef>
#include <cstdint>

#include "support/read_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const qevict::test::ScratchFile scratch;
  scratch.Write({bytes, size});
  static_cast<void>(qevict::test::ReadModel(scratch.path()));
  return 0;
}
