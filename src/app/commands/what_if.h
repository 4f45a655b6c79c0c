#pragma once

#include <string>

#include "app/report/what_if.h"

namespace fsdpbench::app {

/// The command line of `fsdpbench what-if`.
struct WhatIfArguments {
  std::string folder;  ///< a result folder of `run` or `simulate`, or its result.json
  WhatIfQuestion question;
  std::string out;  ///< folder for what_if.json; empty: none is written
  bool overwrite = false;
};

/// Replays a finished run with its own op times under another policy, link or without its slow rank, and prints what
/// its step would take; runs nothing. Returns the process exit code.
int what_if_command(const WhatIfArguments& arguments);

}  // namespace fsdpbench::app
