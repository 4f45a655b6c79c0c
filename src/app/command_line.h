#pragma once

#include <string>
#include <variant>

#include "app/compare.h"
#include "app/doctor.h"
#include "app/explain.h"
#include "app/report.h"
#include "app/run.h"
#include "app/sweep.h"
#include "app/trace_check.h"

namespace fsdpbench::app {

/// --help or --version: text to print, nothing to do.
struct ShowText {
  std::string text;
};

struct CommandLine {
  std::variant<ShowText, RunArguments, CompareArguments, SweepArguments, ExplainArguments, DoctorArguments,
               TraceCheckArguments, ReportArguments>
      command;
  bool quiet = false;
};

/// Throws ConfigError with what is wrong and which help to read.
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace fsdpbench::app
