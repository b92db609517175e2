// A python3 in front of PATH that knows only `-m pip download` and takes wheels from a folder of
// the test.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/scoped_environment.h"
#include "tests/support/temporary_folder.h"

namespace qevict::test {

// One member of the wheel that the fake registry holds.
struct FakeMember {
  std::string path, content;
};

class FakePip {
 public:
  FakePip();

  // Makes a wheel available and returns its bytes.
  std::string AddWheel(const std::string& file_name, const std::vector<FakeMember>& members);
  void SetWheelBytes(const std::string& file_name, const std::string& bytes);
  std::string WheelBytes(const std::string& file_name) const;
  // Shell code that runs before each download: `exit` ends it, `sleep` slows it down.
  void SetBehaviour(const std::string& script);
  // Requirements ("a==1") that were asked for so far.
  std::vector<std::string> Downloads() const;
  const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  ScopedEnvironment path_;
};

}  // namespace qevict::test
