#include <fmt/format.h>

#include <exception>
#include <optional>
#include <type_traits>

#include "app/command_line.h"
#include "app/console/console.h"
#include "app/console/interrupt.h"
#include "app/job/job_run.h"
#include "base/error.h"

namespace fsdpbench::app {
namespace {

/// Commands that run ranks; all others are for one process.
template <class Command>
constexpr bool kMeasures = std::is_same_v<Command, RunArguments> || std::is_same_v<Command, CompareArguments> ||
                           std::is_same_v<Command, SweepArguments>;

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
        } else if constexpr (std::is_same_v<Command, ExplainArguments>) {
          return explain_command(command);
        } else if constexpr (std::is_same_v<Command, DoctorArguments>) {
          return doctor_command(command);
        } else if constexpr (std::is_same_v<Command, TraceCheckArguments>) {
          return trace_check_command(command);
        } else if constexpr (std::is_same_v<Command, ReportArguments>) {
          return report_command(command);
        } else {
          console().print(command.text);
          return static_cast<int>(ExitCode::ok);
        }
      },
      line.command);
}

/// The exit code of what `body` returns or throws; `speaks`: an error is shown.
template <class Body>
int guarded(bool speaks, const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    if (speaks) console().error(error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    if (speaks) console().error(error.what());
    return static_cast<int>(ExitCode::failure);
  }
}

/// A result that nobody could read is no success.
int checked_output(int code) {
  const std::string why = console().unwritten();
  if (why.empty() || code != static_cast<int>(ExitCode::ok)) return code;
  console().error(fmt::format("standard output could not be written: {}; files were written as usual", why));
  return static_cast<int>(ExitCode::cannot_write);
}

/// This process's part of a job. A failure of the job is shown by its watch, by the ranks that should.
int execute_in_job(const CommandLine& line, const launch::Placement& placement) {
  Job job(placement);
  const KeepingWhatIsDone keeping(!job.leads() || line.quiet);
  try {
    if (!job.leads()) return serve(job);
    console().info(job.headline());
    const int code = checked_output(execute(line, &job));
    announce_end(job, code);
    return code;
  } catch (const BackendError& error) {
    // What is lost shows in the data first, and in the channel a moment later.
    if (const std::optional<int> code = job.watch().failure_code(1)) return *code;
    job.channel().fail(error.what());
    return job.watch().failure_code().value_or(static_cast<int>(error.code()));
  } catch (const std::exception& error) {
    if (const std::optional<int> code = job.watch().failure_code()) return *code;
    if (!job.leads()) {
      job.channel().fail(error.what());
      return job.watch().failure_code().value_or(static_cast<int>(ExitCode::rank_failed));
    }
    const int code = guarded(true, []() -> int { throw; });
    announce_end(job, code);
    return code;
  }
}

int run_program(int argc, char** argv) {
  return guarded(true, [&] {
    const std::optional<launch::Placement> placement = launch::find_placement(launch::process_environment());
    const bool speaks = !placement || placement->rank == 0;
    std::optional<CommandLine> line;
    const int code = guarded(speaks, [&] {
      line = parse_command_line(argc, argv);
      return 0;
    });
    if (!line) return code;
    console().set_quiet(line->quiet);
    if (placement && measures(*line)) return execute_in_job(*line, *placement);
    return speaks ? checked_output(execute(*line, nullptr)) : 0;
  });
}

}  // namespace
}  // namespace fsdpbench::app

int main(int argc, char** argv) {
  fsdpbench::app::install_interrupt_handlers();
  return fsdpbench::app::run_program(argc, argv);
}
