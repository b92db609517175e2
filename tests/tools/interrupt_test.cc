#include "tools/qevict/interrupt.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

namespace qevict::cli {
namespace {

using ::testing::ExitedWithCode;
using ::testing::KilledBySignal;

// Each body runs in a process of its own; the last line exits with what the program then believes.
[[noreturn]] void ExitWithBelief() { _Exit((Interrupted() ? 1 : 0) + (Terminated() ? 2 : 0)); }

TEST(InterruptTest, TheFirstSignalIsAQuestionOnly) {
  EXPECT_EXIT((CatchInterrupts(), ExitWithBelief()), ExitedWithCode(0), "");
  EXPECT_EXIT((CatchInterrupts(), raise(SIGINT), ExitWithBelief()), ExitedWithCode(1), "");
  EXPECT_EXIT((CatchInterrupts(), raise(SIGTERM), ExitWithBelief()), ExitedWithCode(3), "");
}

TEST(InterruptTest, ASecondSignalOfEitherKindEndsTheProgram) {
  for (const int first : {SIGINT, SIGTERM}) {
    for (const int second : {SIGINT, SIGTERM}) {
      EXPECT_EXIT((CatchInterrupts(), raise(first), raise(second), ExitWithBelief()),
                  KilledBySignal(second), "");
    }
  }
}

TEST(InterruptTest, AForgottenInterruptMakesTheNextSignalTheFirstAgain) {
  EXPECT_EXIT((CatchInterrupts(), raise(SIGINT), ForgetInterrupt(), ExitWithBelief()),
              ExitedWithCode(0), "");
  EXPECT_EXIT(
      (CatchInterrupts(), raise(SIGINT), ForgetInterrupt(), raise(SIGTERM), ExitWithBelief()),
      ExitedWithCode(3), "");
}

TEST(InterruptTest, ATerminationIsNeitherForgottenNorReplaced) {
  EXPECT_EXIT((CatchInterrupts(), raise(SIGTERM), ForgetInterrupt(), ExitWithBelief()),
              ExitedWithCode(3), "");
  EXPECT_EXIT(
      (CatchInterrupts(), raise(SIGTERM), CatchInterrupts(), raise(SIGINT), ExitWithBelief()),
      ExitedWithCode(3), "");
}

}  // namespace
}  // namespace qevict::cli
