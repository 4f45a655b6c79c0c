#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "app/command_line.h"
#include "base/error.h"
#include "engine/setup.h"
#include "hardware/other_work.h"
#include "launch/interrupt.h"
#include "launch/placement.h"
#include "record/console.h"
#include "runs/job_run.h"
#include "runs/measure.h"
#include "trace/whole_file.h"

namespace fsdpbench::app {
namespace {

/// Work that the ranks of a job can be ordered to do beside training.
Services services() {
  Services all;
  for (const Command& command : all_commands()) {
    if (command.serve) all[command.name] = command.serve;
  }
  return all;
}

/// Not what went wrong, but what was found: of several answers, or that there is one.
bool is_answer(int code) {
  constexpr std::array kAnswers{ExitCode::ok,           ExitCode::slower,        ExitCode::below_floor,
                                ExitCode::inconclusive, ExitCode::other_machine, ExitCode::few_rated};
  return std::ranges::any_of(kAnswers, [&](ExitCode answer) { return static_cast<int>(answer) == code; });
}

/// An answer that nobody could read is none.
int checked_output(int code) {
  const int error = console().unwritten();
  if (error == 0 || !is_answer(code)) return code;
  const char* const files = trace::WholeFile::any_kept() ? "; files were written as usual" : "";
  // A reader that has seen enough, as `head` has, knows why it has no more.
  if (error != EPIPE) {
    console().error(fmt::format("standard output could not be written: {}{}", std::strerror(error), files));
  }
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
      if (parsed.command.runs_ranks) engine::check_environment(launch::process_environment());
      line = std::move(parsed);
      return 0;
    });
    if (!line) return code;
    console().set_quiet(line->quiet);
    say_interrupts(speaks && !line->quiet);
    Call call{.command_line = {argv, argv + argc}};
    if (placement && line->command.runs_ranks) {
      return in_job(*placement, line->quiet, services(), [&](Job& job) {
        call.job = &job;
        return checked_output(line->command.body(call));
      });
    }
    return speaks ? checked_output(line->command.body(call)) : 0;
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
