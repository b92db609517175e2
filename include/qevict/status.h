// Expected failures as values. Nothing in qevict's API throws; a function that can fail returns
// Status or Result<T>, and on error it has changed nothing.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace qevict {

enum class ErrorCode {
  kInvalidArgument,  // a flag, option or call argument that can never work
  kNotFound,         // a file, model or tensor that is not there
  kBadFile,          // a file that is damaged, truncated or not what it claims to be
  kUnsupported,      // a valid thing that this build or version does not handle
  kOutOfMemory,      // the operating system refused memory
  kBudgetExceeded,   // the byte budget refused memory
  kContextFull,      // the sequence has no room for the tokens
  kCancelled,        // the caller asked to stop; what was committed before stays valid
  kIo,               // reading, writing or the network failed
  kInternal,         // a broken promise of a library below us
};

struct Error {
  ErrorCode code;
  std::string message;  // one sentence: what is wrong and what to do
};

template <typename T>
using Result = tl::expected<T, Error>;

class [[nodiscard]] Status {
 public:
  Status() = default;
  // Implicit like those of Result<T>, so that both are returned the same way.
  // NOLINTBEGIN(google-explicit-constructor)
  Status(Error error) : result_(tl::unexpected(std::move(error))) {}
  Status(tl::unexpected<Error> error) : result_(std::move(error)) {}
  // NOLINTEND(google-explicit-constructor)
  bool ok() const { return result_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return result_.error(); }

 private:
  Result<void> result_;
};

inline tl::unexpected<Error> Fail(ErrorCode code, std::string message) {
  return tl::unexpected(Error{code, std::move(message)});
}

}  // namespace qevict

// Returns the error of `expr` (a Status or Result) from the enclosing function.
#define QEVICT_RETURN_IF_ERROR(expr)                                   \
  do {                                                                 \
    if (auto qevict_status = (expr); !qevict_status)                   \
      return ::tl::unexpected(::qevict::Error(qevict_status.error())); \
  } while (false)

#define QEVICT_CONCAT_INNER(a, b) a##b
#define QEVICT_CONCAT(a, b) QEVICT_CONCAT_INNER(a, b)
// QEVICT_ASSIGN_OR_RETURN(auto x, F()): the value of a Result, or its error returned from the
// enclosing function.
#define QEVICT_ASSIGN_OR_RETURN(lhs, expr) \
  QEVICT_ASSIGN_OR_RETURN_INNER(QEVICT_CONCAT(qevict_result_, __LINE__), lhs, expr)
#define QEVICT_ASSIGN_OR_RETURN_INNER(result, lhs, expr)                            \
  auto result = (expr);                                                             \
  if (!result) return ::tl::unexpected(::qevict::Error(std::move(result).error())); \
  lhs = std::move(*result)
