#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>
#include <utility>

#include "app/command_line.h"
#include "app/commands/measure.h"
#include "app/console/console.h"
#include "app/console/interrupt.h"
#include "app/machine/available_memory.h"
#include "base/error.h"
#include "engine/backend_options.h"

namespace fsdpbench::app {
namespace {

/// Commands that run ranks; all others are for one process.
template <class Command>
constexpr bool kMeasures = std::is_same_v<Command, RunArguments> || std::is_same_v<Command, CompareArguments> ||
                           std::is_same_v<Command, SweepArguments> || std::is_same_v<Command, TuneArguments> ||
                           std::is_same_v<Command, CollectivesArguments> || std::is_same_v<Command, AcceptArguments>;

bool measures(const CommandLine& line) {
  return std::visit([](const auto& command) { return kMeasures<std::decay_t<decltype(command)>>; }, line.command);
}

int execute(const CommandLine& line, Job* job) {
  return std::visit(
      [job](const auto& command) {
        using Command = std::decay_t<decltype(command)>;
        if constexpr (std::is_same_v<Command, RunArguments>) {
          return run_command(command, job);
        } else if constexpr (std::is_same_v<Command, CompareArguments>) {
          return compare_command(command, job);
        } else if constexpr (std::is_same_v<Command, SweepArguments>) {
          return sweep_command(command, job);
        } else if constexpr (std::is_same_v<Command, AcceptArguments>) {
          return accept_command(command, job);
        } else if constexpr (std::is_same_v<Command, CollectivesArguments>) {
          return collectives_command(command, job);
        } else if constexpr (std::is_same_v<Command, ExplainArguments>) {
          return explain_command(command);
        } else if constexpr (std::is_same_v<Command, DoctorArguments>) {
          return doctor_command(command);
        } else if constexpr (std::is_same_v<Command, CheckpointShowArguments> ||
                             std::is_same_v<Command, CheckpointExportArguments> ||
                             std::is_same_v<Command, CheckpointImportArguments>) {
          return checkpoint_command(command);
        } else if constexpr (std::is_same_v<Command, TraceCheckArguments>) {
          return trace_check_command(command);
        } else if constexpr (std::is_same_v<Command, TraceExplainArguments>) {
          return trace_explain_command(command);
        } else if constexpr (std::is_same_v<Command, TraceToProfileArguments>) {
          return trace_to_profile_command(command);
        } else if constexpr (std::is_same_v<Command, ReportArguments>) {
          return report_command(command);
        } else if constexpr (std::is_same_v<Command, CalibrateArguments>) {
          return calibrate_command(command);
        } else if constexpr (std::is_same_v<Command, ExportArguments>) {
          return export_command(command);
        } else if constexpr (std::is_same_v<Command, TuneArguments>) {
          return tune_command(command, job);
        } else if constexpr (std::is_same_v<Command, BaselineArguments>) {
          return baseline_command(command);
        } else if constexpr (std::is_same_v<Command, GateArguments>) {
          return gate_command(command);
        } else if constexpr (std::is_same_v<Command, WhatIfArguments>) {
          return what_if_command(command);
        } else {
          console().print(command.text);
          return static_cast<int>(ExitCode::ok);
        }
      },
      line.command);
}

/// Not what went wrong, but what was found: of several answers, or that there is one.
bool is_answer(int code) {
  constexpr std::array kAnswers{ExitCode::ok, ExitCode::slower, ExitCode::below_floor, ExitCode::inconclusive,
                                ExitCode::other_machine};
  return std::ranges::any_of(kAnswers, [&](ExitCode answer) { return static_cast<int>(answer) == code; });
}

/// An answer that nobody could read is none.
int checked_output(int code) {
  const std::string why = console().unwritten();
  if (why.empty() || !is_answer(code)) return code;
  console().error(fmt::format("standard output could not be written: {}; files were written as usual", why));
  return static_cast<int>(ExitCode::cannot_write);
}

int run_program(int argc, char** argv) {
  return guarded(true, [&] {
    const std::optional<launch::Placement> placement = launch::find_placement(launch::process_environment());
    const bool speaks = !placement || placement->rank == 0;
    say_interrupts(speaks);
    std::optional<CommandLine> line;
    const int code = guarded(speaks, [&] {
      CommandLine parsed = parse_command_line(argc, argv);
      if (measures(parsed)) engine::check_environment(launch::process_environment());
      line = std::move(parsed);
      return 0;
    });
    if (!line) return code;
    console().set_quiet(line->quiet);
    say_interrupts(speaks && !line->quiet);
    if (placement && measures(*line)) {
      return in_job(*placement, line->quiet, [&](Job& job) { return checked_output(execute(*line, &job)); });
    }
    return speaks ? checked_output(execute(*line, nullptr)) : 0;
  });
}

}  // namespace
}  // namespace fsdpbench::app

int main(int argc, char** argv) {
  fsdpbench::app::occupy_closed_streams();
  fsdpbench::app::spare_address_space();
  fsdpbench::app::install_interrupt_handlers();
  return fsdpbench::app::run_program(argc, argv);
}
