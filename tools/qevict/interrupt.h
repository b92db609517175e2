// Ctrl-C and SIGTERM as a question that long work asks.
#pragma once

namespace qevict::cli {

// From now on the first SIGINT or SIGTERM only makes Interrupted() true; the second ends the
// program at once.
void CatchInterrupts();
bool Interrupted();

}  // namespace qevict::cli
