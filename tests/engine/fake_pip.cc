#include "tests/engine/fake_pip.h"

#include <zip.h>

#include <fstream>
#include <iterator>

#include "core/check.h"

namespace qevict::test {
namespace {

std::string PathBehind(const std::filesystem::path& folder) {
  const char* old = getenv("PATH");
  return folder.string() + ":" + (old == nullptr ? "" : old);
}

// The last argument is the requirement; --dest names the folder. The real pip writes below TMPDIR
// first.
constexpr char kScript[] = R"(#!/bin/sh
here=$(dirname "$0")
for argument; do requirement=$argument; done
while [ "$1" != --dest ]; do shift; done
echo "$requirement" >> "$here/downloads"
. "$here/behaviour"
name=$(echo "${requirement%%==*}" | tr - _)-${requirement##*==}-py3-none-any.whl
[ -e "$here/wheels/$name" ] || { echo "ERROR: No matching distribution found for $requirement" >&2; exit 1; }
cp "$here/wheels/$name" "$TMPDIR/$name" && mv "$TMPDIR/$name" "$2/"
)";

}  // namespace

FakePip::FakePip() : path_("PATH", PathBehind(folder_.path())) {
  std::filesystem::create_directories(folder() / "wheels");
  std::ofstream(folder() / "python3") << kScript;
  std::filesystem::permissions(folder() / "python3", std::filesystem::perms::owner_all);
  SetBehaviour("");
}

std::string FakePip::AddWheel(const std::string& file_name,
                              const std::vector<FakeMember>& members) {
  const std::string path = (folder() / "wheels" / file_name).string();
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
  QEVICT_CHECK(archive != nullptr);
  for (const FakeMember& member : members) {
    zip_source_t* source =
        zip_source_buffer(archive, member.content.data(), member.content.size(), 0);
    QEVICT_CHECK(zip_file_add(archive, member.path.c_str(), source, 0) >= 0);
  }
  QEVICT_CHECK_EQ(zip_close(archive), 0);
  return WheelBytes(file_name);
}

void FakePip::SetWheelBytes(const std::string& file_name, const std::string& bytes) {
  std::ofstream(folder() / "wheels" / file_name, std::ios::binary) << bytes;
}

std::string FakePip::WheelBytes(const std::string& file_name) const {
  std::ifstream file(folder() / "wheels" / file_name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void FakePip::SetBehaviour(const std::string& script) {
  std::ofstream(folder() / "behaviour") << script << "\n";
}

std::vector<std::string> FakePip::Downloads() const {
  std::ifstream file(folder() / "downloads");
  return {std::istream_iterator<std::string>(file), {}};
}

}  // namespace qevict::test
