// What ggml and libllama log never reaches the terminal: a user sees the one sentence of our
// Status. The last error or warning line is kept, so that the sentence can quote what the library
// below said.
#pragma once

#include <string>

namespace qevict {

// Installs the callback for the whole process, once; later calls do nothing. Setting
// QEVICT_GGML_LOG=1 lets everything through to standard error, for debugging. Any thread.
void RouteGgmlLog();

// The last error line (or, when there was none, the last warning) that ggml or libllama logged on
// this thread since the last call; empty when there was none. One line, without the line break.
std::string TakeGgmlError();

}  // namespace qevict
