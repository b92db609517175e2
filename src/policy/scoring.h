// What a window's score is made of. A query's softmax gives every window a mass; queries that vote
// add theirs to the windows' scores, which routing ranks.
#pragma once

#include <algorithm>
#include <cstdint>

namespace qevict {

enum class ScoreWhen {
  kStep,   // every decoded token votes
  kEvent,  // of the decoded tokens, only those behind which the history is reviewed, as published
};
// How the query heads of a GQA group become one mass.
enum class GroupMass { kMean, kMax };
// Whether a window also counts what its neighbours received. A prompt's last tokens attend to the
// place that answers a question, and the answer continues in the window behind it.
enum class MassPooling { kNone, kNeighbours };

inline constexpr uint32_t kAllTokens = UINT32_MAX;

struct ScoringConfig {
  ScoreWhen when = ScoreWhen::kStep;
  // Of a prompt's tokens, the last ones, which vote; of a streamed prompt, those of every piece
  // that is committed, since windows are routed behind each. kAllTokens: the columns of its
  // attention matrix are summed, which costs its attention a second time, in f32
  // (cache/window_votes.h).
  uint32_t prior_tokens = 32;
  MassPooling prior_pooling = MassPooling::kNeighbours;  // of what a prompt's tokens give
  GroupMass group = GroupMass::kMean;
  // Divides a score by the number of voters at or behind the window's first token.
  bool per_voter = false;
  // Weights a score by the mean |v| of the window's values, which is their L1 norm up to a factor
  // that all windows of a head share. Not by ||W_o v||: the cache does not know the output
  // projection, and to apply it would cost more than attention.
  bool value_weighted = false;
};

}  // namespace qevict
