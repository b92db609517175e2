// Writes small valid files as the first corpus: one for each family and tokenizer.
#include <fmt/format.h>

#include "support/tiny_model.h"

int main(int argc, char** argv) {
  using namespace qevict::test;
  if (argc != 2) {
    fmt::print(stderr, "usage: gguf_fuzz_seeds FOLDER\n");
    return 2;
  }
  for (NamedTinyModel model : TinyFamilies(/*head_dim=*/16)) {
    for (const TinyTokenizer tokenizer : {TinyTokenizer::kByteBpe, TinyTokenizer::kSentencePiece}) {
      model.config.tokenizer = tokenizer;
      model.config.layers = 1;
      model.config.embedding = model.config.feed_forward = 32;
      model.config.vocab = 320;
      model.config.type = GGML_TYPE_Q4_0;
      const auto written = WriteTinyModel(
          model.config, fmt::format("{}/{}_{}.gguf", argv[1], model.name, int(tokenizer)));
      if (!written) {
        fmt::print(stderr, "error: {}\n", written.error().message);
        return 1;
      }
    }
  }
}
