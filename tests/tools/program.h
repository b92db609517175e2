// The qevict program as a user runs it: arguments in; exit code, standard output and standard error
// out.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace qevict::test {

struct ProgramRun {
  int exit_code = 0;
  std::string out, err;
  uint64_t peak_resident_bytes = 0;  // as the kernel saw it
  // Throws, and so fails the test, when it is none.
  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

// Arguments are passed as they are, without a shell.
ProgramRun RunQevict(const std::vector<std::string>& arguments);
// A shell command in which $QEVICT is the program.
ProgramRun RunShell(const std::string& command);

}  // namespace qevict::test
