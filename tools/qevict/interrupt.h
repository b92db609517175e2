// Ctrl-C and SIGTERM as a question that long work asks.
#pragma once

namespace qevict::cli {

// From now on the first SIGINT or SIGTERM only makes Interrupted() true; a second one of either
// kind ends the program at once.
void CatchInterrupts();
bool Interrupted();
// It was SIGTERM: somebody wants the program to end, not only what it is doing.
bool Terminated();
// For a conversation, which goes on after an interrupted answer: forgets a SIGINT, and the next
// signal is the first again. A SIGTERM is not forgotten.
void ForgetInterrupt();

}  // namespace qevict::cli
