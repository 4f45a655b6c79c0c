#pragma once

#include "app/commands/command.h"

namespace fsdpbench::app {

/// Task of this call: one command, whose arguments are read.
struct CommandLine {
  Command command;
  bool quiet = false;
};

/// Throws ConfigError with what is wrong and which help to read.
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace fsdpbench::app
