// Exit codes of every command (docs/command-line.md) and the names of errors in --json output.
#pragma once

#include <string_view>

#include "qevict/status.h"

namespace qevict::cli {

enum class ExitStatus : int {
  kOk = 0,
  kInternal = 1,     // a broken promise of a library below us
  kUsage = 2,        // an unknown flag, a missing or impossible value
  kFile = 3,         // a file or model that is not there, or not what it claims to be
  kUnsupported = 4,  // a valid model or request that this build does not handle
  kMemory = 5,       // out of memory, byte budget or context
  kIo = 6,           // reading, writing or the network failed
  kInterrupted = 130,
};

constexpr ExitStatus ExitStatusOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return ExitStatus::kUsage;
    case ErrorCode::kNotFound:
    case ErrorCode::kBadFile:
      return ExitStatus::kFile;
    case ErrorCode::kUnsupported:
      return ExitStatus::kUnsupported;
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kBudgetExceeded:
    case ErrorCode::kContextFull:
      return ExitStatus::kMemory;
    case ErrorCode::kCancelled:
      return ExitStatus::kInterrupted;
    case ErrorCode::kIo:
      return ExitStatus::kIo;
    case ErrorCode::kInternal:
      return ExitStatus::kInternal;
  }
  return ExitStatus::kInternal;
}

constexpr std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kBadFile:
      return "bad_file";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kOutOfMemory:
      return "out_of_memory";
    case ErrorCode::kBudgetExceeded:
      return "budget_exceeded";
    case ErrorCode::kContextFull:
      return "context_full";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

}  // namespace qevict::cli
