#include "tools/qevict/command.h"

int main(int argc, char** argv) {
  qevict::cli::CommandLine line;
  qevict::cli::AddAllCommands(line);
  return line.Run(argc, argv);
}
