#pragma once

#include <string>
#include <variant>

#include "app/commands/accept.h"
#include "app/commands/baseline.h"
#include "app/commands/calibrate.h"
#include "app/commands/checkpoint.h"
#include "app/commands/collectives.h"
#include "app/commands/compare.h"
#include "app/commands/doctor.h"
#include "app/commands/explain.h"
#include "app/commands/export.h"
#include "app/commands/gate.h"
#include "app/commands/report.h"
#include "app/commands/run.h"
#include "app/commands/sweep.h"
#include "app/commands/trace_check.h"
#include "app/commands/trace_explain.h"
#include "app/commands/trace_to_profile.h"
#include "app/commands/tune.h"
#include "app/commands/what_if.h"

namespace fsdpbench::app {

/// --help or --version: text to print, nothing to do.
struct ShowText {
  std::string text;
};

struct CommandLine {
  std::variant<ShowText, RunArguments, CompareArguments, SweepArguments, ExplainArguments, DoctorArguments,
               TraceCheckArguments, TraceExplainArguments, TraceToProfileArguments, CheckpointShowArguments,
               CheckpointExportArguments, CheckpointImportArguments, ReportArguments, WhatIfArguments,
               CalibrateArguments, ExportArguments, TuneArguments, CollectivesArguments, AcceptArguments,
               BaselineArguments, GateArguments>
      command;
  bool quiet = false;
};

/// Throws ConfigError with what is wrong and which help to read.
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace fsdpbench::app
