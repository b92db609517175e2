#include "model/sampler.h"

#include <fmt/format.h>
#include <llama.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>

#include "core/check.h"
#include "model/grammar.h"

namespace qevict {
namespace {

constexpr float kGreedyBelow = 1e-6f;  // a smaller divisor would make logits infinite
constexpr float kLargestLogit = 1e30f;
constexpr float kImpossible = -std::numeric_limits<float>::infinity();

Error OutOfRange(std::string_view flag, std::string_view range, double value) {
  return {ErrorCode::kInvalidArgument, fmt::format("{} must be {}, not {}", flag, range, value)};
}

llama_sampler* MakeChain(const SamplingConfig& config) {
  llama_sampler_chain_params params = llama_sampler_chain_default_params();
  params.no_perf = true;
  llama_sampler* chain = llama_sampler_chain_init(params);
  // libllama reads its default seed as "a different one each time".
  const uint32_t seed = config.seed == LLAMA_DEFAULT_SEED ? ~LLAMA_DEFAULT_SEED : config.seed;
  for (llama_sampler* link :
       {llama_sampler_init_top_p(config.top_p, 1), llama_sampler_init_min_p(config.min_p, 1),
        llama_sampler_init_temp(config.temperature), llama_sampler_init_dist(seed)}) {
    llama_sampler_chain_add(chain, link);
  }
  return chain;
}

Token EndOfGeneration(const Tokenizer& tokenizer) {
  const Token eos = llama_vocab_eos(tokenizer.vocab()), eot = llama_vocab_eot(tokenizer.vocab());
  return eos != LLAMA_TOKEN_NULL ? eos : eot != LLAMA_TOKEN_NULL ? eot : 0;
}

}  // namespace

Status CheckSampling(const SamplingConfig& config) {
  // Written so that NaN fails every test.
  if (!(config.temperature >= 0.0f && config.temperature <= 100.0f)) {
    return OutOfRange("--temp", "between 0 (greedy) and 100", config.temperature);
  }
  if (config.top_k < 0) {
    return OutOfRange("--top-k", "0 (the whole vocabulary) or more", config.top_k);
  }
  if (!(config.top_p > 0.0f && config.top_p <= 1.0f)) {
    return OutOfRange("--top-p", "above 0 and at most 1 (off)", config.top_p);
  }
  if (!(config.min_p >= 0.0f && config.min_p <= 1.0f)) {
    return OutOfRange("--min-p", "between 0 (off) and 1", config.min_p);
  }
  if (!(config.repeat_penalty > 0.0f && config.repeat_penalty <= 100.0f)) {
    return OutOfRange("--repeat-penalty", "above 0 and at most 100; 1 is off",
                      config.repeat_penalty);
  }
  if (config.repeat_last_n < 0) {
    return OutOfRange("--repeat-last-n", "0 (none) or more", config.repeat_last_n);
  }
  if (!config.grammar.empty() && !config.json_schema.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "--grammar-file and --json-schema exclude each other; give one of them");
  }
  return {};
}

void Sampler::Deleter::operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }

Sampler::Sampler(const Tokenizer& tokenizer, const SamplingConfig& config)
    : tokenizer_(&tokenizer), config_(config), chain_(MakeChain(config)) {}
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;
Sampler::~Sampler() = default;

Result<Sampler> Sampler::Create(const Tokenizer& tokenizer, const SamplingConfig& config) {
  QEVICT_RETURN_IF_ERROR(CheckSampling(config));
  Sampler sampler(tokenizer, config);
  QEVICT_RETURN_IF_ERROR(sampler.LoadGrammar());
  return sampler;
}

Status Sampler::LoadGrammar() {
  std::string gbnf = config_.grammar;
  if (!config_.json_schema.empty()) {
    QEVICT_ASSIGN_OR_RETURN(gbnf, GrammarOfJsonSchema(config_.json_schema));
  }
  if (gbnf.empty()) return {};
  QEVICT_ASSIGN_OR_RETURN(llama_sampler * grammar, MakeGrammarSampler(tokenizer_->vocab(), gbnf));
  grammar_.reset(grammar);
  grammar_state_ = GrammarState::kOpen;
  return {};
}

void Sampler::RefreshOverrides(std::span<const float> logits) {
  overrides_.clear();
  for (const Token token : recent_) {
    const float logit = logits[size_t(token)];
    // Dividing a negative logit would make it more likely, as the CTRL paper's formula does.
    const float scaled =
        logit > 0.0f ? logit / config_.repeat_penalty : logit * config_.repeat_penalty;
    overrides_.push_back({token, std::clamp(scaled, -kLargestLogit, kLargestLogit)});
  }
  int32_t suppressed = 0;
  const llama_token* suppress = llama_vocab_get_suppress_tokens(tokenizer_->vocab(), &suppressed);
  for (int32_t i = 0; i < suppressed; ++i) {
    if (suppress[i] >= 0 && size_t(suppress[i]) < logits.size()) {
      overrides_.push_back({suppress[i], kImpossible});
    }
  }
  // A token that is both keeps the lower logit: suppressed.
  std::ranges::sort(overrides_, [](const ScoredToken& a, const ScoredToken& b) {
    return a.token != b.token ? a.token < b.token : a.logit < b.logit;
  });
  const auto same_token = [](const ScoredToken& a, const ScoredToken& b) {
    return a.token == b.token;
  };
  overrides_.erase(std::unique(overrides_.begin(), overrides_.end(), same_token), overrides_.end());
}

bool Sampler::GrammarAllows(Token token) const {
  llama_token_data candidate{token, 1.0f, 0.0f};
  llama_token_data_array array{&candidate, 1, -1, false};
  llama_sampler_apply(grammar_.get(), &array);
  return candidate.logit != kImpossible;
}

// best_ becomes candidates_ without what the grammar forbids.
void Sampler::KeepAllowed() {
  candidates_.clear();
  for (const ScoredToken& token : best_) candidates_.push_back({token.token, token.logit, 0.0f});
  if (grammar_state_ == GrammarState::kNone) return;
  llama_token_data_array array{candidates_.data(), candidates_.size(), -1, /*sorted=*/false};
  llama_sampler_apply(grammar_.get(), &array);
  std::erase_if(candidates_, [](const llama_token_data& c) { return c.logit == kImpossible; });
}

void Sampler::PickAllowed(const LogitView& view) {
  FiniteLogits(view, best_);
  KeepAllowed();
}

void Sampler::PickAllowed(const LogitView& view, size_t count) {
  // The grammar is slow on a whole vocabulary, and what it allows is mostly among the best.
  for (size_t tried = grammar_state_ == GrammarState::kNone ? count : count * 4 + 32;; tried *= 8) {
    LargestLogits(view, tried, best_);
    KeepAllowed();
    if (candidates_.size() >= count || best_.size() < tried) break;
  }
  if (candidates_.size() > count) candidates_.resize(count);
}

Token Sampler::Draw(Order order) {
  llama_token_data_array array{candidates_.data(), candidates_.size(), -1,
                               order == Order::kDescending};
  llama_sampler_apply(chain_.get(), &array);
  const bool selected = array.selected >= 0 && size_t(array.selected) < array.size;
  return array.data[selected ? size_t(array.selected) : 0].id;
}

Token Sampler::Sample(std::span<const float> logits) {
  QEVICT_CHECK_EQ(logits.size(), tokenizer_->vocab_size());
  if (grammar_state_ == GrammarState::kEnded) return EndOfGeneration(*tokenizer_);
  RefreshOverrides(logits);
  const LogitView view{logits, overrides_};
  const bool greedy = config_.temperature < kGreedyBelow;
  if (greedy) {
    const auto best = LargestLogit(view);
    if (best && (grammar_state_ == GrammarState::kNone || GrammarAllows(best->token))) {
      return best->token;
    }
  }
  const size_t count = greedy ? 1 : std::min(size_t(config_.top_k), logits.size());
  count == 0 ? PickAllowed(view) : PickAllowed(view, count);
  if (candidates_.empty()) return EndOfGeneration(*tokenizer_);
  return greedy ? candidates_[0].id : Draw(count == 0 ? Order::kNone : Order::kDescending);
}

void Sampler::Accept(Token token, Origin origin) {
  QEVICT_CHECK_LT(size_t(token), tokenizer_->vocab_size());
  if (config_.repeat_penalty != 1.0f && config_.repeat_last_n > 0) {
    recent_.push_back(token);
    if (recent_.size() > size_t(config_.repeat_last_n)) recent_.pop_front();
  }
  if (grammar_state_ != GrammarState::kOpen || origin == Origin::kPrompt) return;
  // Asked first: libllama ends the process when an end-of-generation token comes too early.
  if (!GrammarAllows(token)) {
    grammar_state_ = GrammarState::kEnded;
    return;
  }
  try {
    llama_sampler_accept(grammar_.get(), token);
  } catch (const std::exception&) {  // the grammar has no state left
    grammar_state_ = GrammarState::kEnded;
  }
}

}  // namespace qevict
