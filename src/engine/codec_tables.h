// The codec's tables of a model, kept in a file beside the user's cache
// (docs/formats/codec-tables.md) so that they are measured once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codec/head_codec.h"
#include "model/gguf_file.h"
#include "qevict/status.h"

namespace qevict {

struct TablesShape {
  uint32_t layers = 0, kv_heads = 0, head_dim = 0;
};

// 64 hex digits that tell a model file from any other: SHA-256 of its size, its beginning and
// pieces spread over all of it. Reading gigabytes of weights at every start would cost seconds.
std::string ModelFingerprint(const GgufFile& file);

// FOLDER/FINGERPRINT.tables
std::string TablesPath(const std::string& folder, const std::string& fingerprint);
// nullopt: there is no such file. Error kBadFile: it is damaged or of another version, shape or
// model; kIo.
Result<std::optional<std::vector<HeadTables>>> ReadTables(const std::string& path,
                                                          const std::string& fingerprint,
                                                          const TablesShape& shape);
// Error kIo: the folder cannot be made or written to.
Status MakeTablesFolder(const std::string& folder);
// Whole or not at all. Error kIo.
Status WriteTables(const std::string& path, const std::string& fingerprint,
                   const TablesShape& shape, const std::vector<HeadTables>& tables);

}  // namespace qevict
