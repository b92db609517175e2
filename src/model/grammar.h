// Grammars that constrain an answer, checked before libllama sees them.
#pragma once

#include <string>

#include "qevict/status.h"

struct llama_sampler;
struct llama_vocab;

namespace qevict {

// GBNF for a JSON schema. Error kInvalidArgument: not JSON, or a schema that has no grammar.
[[nodiscard]] Result<std::string> GrammarOfJsonSchema(const std::string& json_schema);

// A libllama sampler for GBNF; free it with llama_sampler_free. Error kInvalidArgument with what is
// wrong in the grammar. A text so deeply nested that libllama's recursive parser would overflow the
// stack is refused.
[[nodiscard]] Result<llama_sampler*> MakeGrammarSampler(const llama_vocab* vocab,
                                                        const std::string& gbnf);

}  // namespace qevict
