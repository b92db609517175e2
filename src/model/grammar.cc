#include "model/grammar.h"

#include <fmt/format.h>
#include <json-schema-to-grammar.h>
#include <llama.h>

#include <algorithm>
#include <exception>
#include <new>
#include <string_view>

#include "core/utf8.h"
#include "model/ggml_log.h"
#include "model/stderr_capture.h"

namespace qevict {
namespace {

// libllama's parsers recurse for every bracket, and once per rule of a chain of rules.
constexpr size_t kMaxNesting = 200;
constexpr size_t kMaxRules = 10'000;
constexpr size_t kMaxTextBytes = size_t{1} << 20;

// How deep parentheses nest in GBNF: outside "literals", [classes] and # comments.
size_t GbnfNesting(std::string_view text) {
  size_t depth = 0, deepest = 0;
  char closing = '\0';  // of the literal, class or comment that we are in
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (closing != '\0') {
      if (c == '\\' && closing != '\n') ++i;
      if (c == closing) closing = '\0';
    } else if (c == '"') {
      closing = '"';
    } else if (c == '[') {
      closing = ']';
    } else if (c == '#') {
      closing = '\n';
    } else if (c == '(') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ')' && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

size_t JsonNesting(std::string_view text) {
  size_t depth = 0, deepest = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    if (quoted && c == '\\') ++i;
    if (!quoted && (c == '[' || c == '{')) deepest = std::max(deepest, ++depth);
    if (!quoted && (c == ']' || c == '}') && depth > 0) --depth;
  }
  return deepest;
}

size_t CountRules(std::string_view gbnf) {
  size_t rules = 0;
  for (size_t at = gbnf.find("::="); at != gbnf.npos; at = gbnf.find("::=", at + 3)) ++rules;
  return rules;
}

// One line of reasonable length that a person can read.
std::string Excerpt(std::string_view text) {
  text = text.substr(0, std::min(text.find('\n'), size_t{160}));
  return ReplaceInvalidUtf8(text);
}

std::string Reason(std::string_view captured) {
  constexpr std::string_view kMark = "error parsing grammar: ";
  if (const size_t at = captured.find(kMark); at != captured.npos) {
    return Excerpt(captured.substr(at + kMark.size()));
  }
  const std::string logged = TakeGgmlError();
  return logged.empty() ? "it does not parse" : Excerpt(logged);
}

}  // namespace

Result<std::string> GrammarOfJsonSchema(const std::string& json_schema) {
  if (json_schema.size() > kMaxTextBytes || JsonNesting(json_schema) > kMaxNesting) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--json-schema: more than {} bytes or {} levels are not supported",
                            kMaxTextBytes, kMaxNesting));
  }
  const auto fail = [](std::string_view reason) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("--json-schema: {}", Excerpt(reason)));
  };
  StderrCapture capture;
  std::string gbnf;
  try {
    gbnf = json_schema_to_grammar(common_json::parse(json_schema), /*force_gbnf=*/true);
  } catch (const std::bad_alloc&) {
    return Fail(ErrorCode::kOutOfMemory, "not enough memory for --json-schema; give a smaller one");
  } catch (const std::exception& error) {
    std::string reason = error.what();
    std::ranges::replace(reason, '\n', ' ');
    // The JSON library puts its own name for the error before it.
    if (reason.starts_with("[json")) reason.erase(0, reason.find("] ") + 2);
    return fail(reason);
  }
  // It would go on with "any string" in place of a pattern that it cannot express.
  const std::string captured = capture.Finish();
  constexpr std::string_view kMark = "conversion was incomplete: ";
  if (const size_t at = captured.find(kMark); at != captured.npos) {
    return fail(std::string_view(captured).substr(at + kMark.size()));
  }
  StderrCapture::Forward(captured);
  return gbnf;
}

Result<llama_sampler*> MakeGrammarSampler(const llama_vocab* vocab, const std::string& gbnf) {
  if (const auto offset = FirstInvalidUtf8(gbnf)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("the grammar is not valid UTF-8 at byte {}", *offset));
  }
  if (gbnf.find('\0') != gbnf.npos) {
    return Fail(ErrorCode::kInvalidArgument, "the grammar holds a zero byte");
  }
  if (gbnf.size() > kMaxTextBytes || GbnfNesting(gbnf) > kMaxNesting ||
      CountRules(gbnf) > kMaxRules) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("the grammar has more than {} bytes, {} levels of brackets or {} rules",
                            kMaxTextBytes, kMaxNesting, kMaxRules));
  }
  TakeGgmlError();  // of an earlier call
  StderrCapture capture;
  llama_sampler* sampler = nullptr;
  std::string thrown;
  try {
    sampler = llama_sampler_init_grammar(vocab, gbnf.c_str(), "root");
  } catch (const std::bad_alloc&) {
    return Fail(ErrorCode::kOutOfMemory, "not enough memory for the grammar; give a smaller one");
  } catch (const std::exception& error) {
    thrown = error.what();
  }
  const std::string captured = capture.Finish();
  if (sampler == nullptr) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("the grammar cannot be used: {}",
                            thrown.empty() ? Reason(captured) : Excerpt(thrown)));
  }
  StderrCapture::Forward(captured);
  return sampler;
}

}  // namespace qevict
