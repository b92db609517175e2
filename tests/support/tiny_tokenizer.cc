#include "support/tiny_tokenizer.h"

#include <gguf.h>

#include <array>
#include <string_view>

namespace qevict::test {
namespace {

constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUnused = 5,
                  kByte = 6;  // llama_token_type

// In the order of their ranks; each part is a byte or an earlier merge. '_' is a space.
constexpr std::array<std::array<std::string_view, 2>, 24> kMerges = {{
    {"t", "h"},  {"i", "n"},   {"e", "r"},  {"a", "n"},   {"r", "e"},  {"o", "n"},
    {"_", "t"},  {"_", "a"},   {"th", "e"}, {"_", "s"},   {"e", "s"},  {"o", "r"},
    {"e", "n"},  {"a", "t"},   {"_t", "h"}, {"_th", "e"}, {"in", "g"}, {"an", "d"},
    {"_a", "n"}, {"_an", "d"}, {"i", "s"},  {"o", "u"},   {"l", "l"},  {"e", "d"},
}};

std::string Utf8(uint32_t code_point) {
  if (code_point < 0x80) return {char(code_point)};
  return {char(0xc0 | code_point >> 6), char(0x80 | (code_point & 0x3f))};
}

// GPT-2's byte alphabet: printable bytes stand for themselves, the others for U+0100 and up, in
// order.
std::array<std::string, 256> ByteAlphabet() {
  std::array<std::string, 256> alphabet;
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    alphabet[byte] = Utf8(printable ? byte : next++);
  }
  return alphabet;
}

std::string WithSpace(std::string_view text, std::string_view space) {
  std::string result;
  for (char c : text) result += c == '_' ? std::string(space) : std::string(1, c);
  return result;
}

void SetStrings(gguf_context* metadata, const char* key, const std::vector<std::string>& strings) {
  std::vector<const char*> pointers;
  for (const std::string& s : strings) pointers.push_back(s.c_str());
  gguf_set_arr_str(metadata, key, pointers.data(), pointers.size());
}

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  void Add(std::string token, int32_t type) {
    tokens.push_back(std::move(token));
    types.push_back(type);
  }
  void Pad(uint32_t size) {
    while (tokens.size() < size) Add("<unused" + std::to_string(tokens.size()) + ">", kUnused);
  }
  void Set(gguf_context* metadata) const {
    SetStrings(metadata, "tokenizer.ggml.tokens", tokens);
    gguf_set_arr_data(metadata, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(),
                      types.size());
  }
};

void SetByteBpe(gguf_context* metadata, uint32_t vocab) {
  const std::array<std::string, 256> alphabet = ByteAlphabet();
  Vocabulary vocabulary;
  for (const std::string& token : alphabet) vocabulary.Add(token, kNormal);
  std::vector<std::string> merges;
  for (const auto& [left, right] : kMerges) {
    const std::string a = WithSpace(left, alphabet[' ']), b = WithSpace(right, alphabet[' ']);
    merges.push_back(a + " " + b);
    vocabulary.Add(a + b, kNormal);
  }
  const auto end_of_text = uint32_t(vocabulary.tokens.size());
  vocabulary.Add("<|endoftext|>", kControl);
  vocabulary.Add("<|im_start|>", kControl);
  vocabulary.Add("<|im_end|>", kControl);
  vocabulary.Pad(vocab);
  vocabulary.Set(metadata);
  SetStrings(metadata, "tokenizer.ggml.merges", merges);
  gguf_set_val_str(metadata, "tokenizer.ggml.model", "gpt2");
  gguf_set_val_str(metadata, "tokenizer.ggml.pre", "qwen2");
  gguf_set_val_u32(metadata, "tokenizer.ggml.bos_token_id", end_of_text);
  gguf_set_val_u32(metadata, "tokenizer.ggml.eos_token_id", end_of_text + 2);
  gguf_set_val_bool(metadata, "tokenizer.ggml.add_bos_token", false);
}

void SetSentencePiece(gguf_context* metadata, uint32_t vocab) {
  constexpr std::string_view kSpace = "\xe2\x96\x81";
  Vocabulary vocabulary;
  vocabulary.Add("<unk>", kUnknown);
  vocabulary.Add("<s>", kControl);
  vocabulary.Add("</s>", kControl);
  for (uint32_t byte = 0; byte < 256; ++byte) {
    constexpr char kHex[] = "0123456789ABCDEF";
    vocabulary.Add(std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">", kByte);
  }
  for (const auto& [left, right] : kMerges)
    vocabulary.Add(WithSpace(left, kSpace) + WithSpace(right, kSpace), kNormal);
  vocabulary.Add(std::string(kSpace), kNormal);
  for (char c = 'a'; c <= 'z'; ++c) vocabulary.Add(std::string(1, c), kNormal);
  vocabulary.Pad(vocab);
  vocabulary.Set(metadata);
  std::vector<float> scores;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) scores.push_back(-float(i));
  gguf_set_arr_data(metadata, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(),
                    scores.size());
  gguf_set_val_str(metadata, "tokenizer.ggml.model", "llama");
  gguf_set_val_u32(metadata, "tokenizer.ggml.bos_token_id", 1);
  gguf_set_val_u32(metadata, "tokenizer.ggml.eos_token_id", 2);
  gguf_set_val_bool(metadata, "tokenizer.ggml.add_bos_token", true);
}

}  // namespace

void SetTinyTokenizer(gguf_context* metadata, TinyTokenizer kind, uint32_t vocab) {
  kind == TinyTokenizer::kByteBpe ? SetByteBpe(metadata, vocab) : SetSentencePiece(metadata, vocab);
}

TextTokens TextTokensOf(TinyTokenizer kind) {
  return kind == TinyTokenizer::kByteBpe ? TextTokens{0, 256 + kMerges.size()}
                                         : TextTokens{3, 3 + 256 + kMerges.size() + 27};
}

}  // namespace qevict::test
