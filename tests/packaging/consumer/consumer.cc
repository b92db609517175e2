// What an engine author writes first: the installed headers and the installed library, nothing of
// the source tree.
#include <qevict/ids.h>
#include <qevict/status.h>
#include <qevict/version.h>

#include <iostream>

int main(int argc, char** argv) {
  const qevict::Result<qevict::WindowId> window = qevict::WindowId(7);
  const qevict::Status refused = qevict::Fail(qevict::ErrorCode::kBudgetExceeded, "no room");
  std::cout << "libqevict " << qevict::Version() << "\n";
  return argc == 2 && qevict::Version() == argv[1] && window->value == 7 && !refused.ok() ? 0 : 1;
}
