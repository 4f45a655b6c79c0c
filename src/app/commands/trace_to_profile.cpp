#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "app/commands/command.h"
#include "base/error.h"
#include "config/calibration.h"
#include "foreign/kineto_reader.h"
#include "foreign/traced_profile.h"
#include "record/console.h"
#include "runs/result_folder.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench trace to-profile`.
struct TraceToProfileArguments {
  std::vector<std::string> traces;  ///< files and folders
  std::string calibration;          ///< file for the op times; empty: none is written
  bool overwrite = false;
};

/// Prints a profile that reproduces the job, and writes the calibration that it names, if one is asked for. Returns
/// ExitCode::ok; throws ConfigError if the job follows no schedule that is known here.
int print_profile(const TraceToProfileArguments& arguments) {
  const bool keeps = !arguments.calibration.empty();
  if (keeps) refuse_old_file(arguments.calibration, arguments.overwrite, "--calibration");
  const foreign::JobTrace job = foreign::read_job(arguments.traces);
  const foreign::Recognition found = foreign::recognise(job);
  TracedProfile profile = traced_profile(job, found, adopt_job(job, found));
  if (keeps) {
    write_file(arguments.calibration, config::to_toml(profile.calibration));
    profile.config.simulate.calibration = std::filesystem::absolute(arguments.calibration).string();
  }
  console().print(profile_text(profile));
  if (keeps) {
    console().info(profile.fidelity());
    console().info(fmt::format("calibration  {}", arguments.calibration));
  } else {
    console().info("Without the traced times of its ops, which --calibration FILE keeps for it.");
  }
  return static_cast<int>(ExitCode::ok);
}

constexpr const char* kTraceToProfileHelp =
    R"(Prints a profile whose simulation repeats the traced job: its units, mesh, dtypes and schedule. With --calibration
the times of its ops are kept in FILE, which the profile names. The job must be sharded training, with the files of all
ranks, whose order of collectives is one of the schedules known here (`trace explain` says whether it is).

Examples
  fsdpbench trace to-profile runs/one/trace --calibration times.toml > profile.toml
  fsdpbench simulate profile.toml
  fsdpbench tune --from traces/   (all in one: what to change in the traced program)

Exit codes: 0 printed, 2 no such job or a file that cannot be read, 4 the calibration cannot be written.
)";

}  // namespace

Command trace_to_profile_command() {
  const auto to_profile = std::make_shared<TraceToProfileArguments>();
  Command command("trace to-profile", CommandGroup::exchange, "Print a profile whose simulation repeats a traced job",
                  kTraceToProfileHelp);
  command.argument("TRACE", &to_profile->traces, "Files, one for each rank, or folders");
  command.option("--calibration", &to_profile->calibration, "FILE", "File for the op times; default: none is written");
  command.overwrite(to_profile->overwrite, "Replace FILE; otherwise that is refused");
  command.body = [to_profile](const Call&) { return print_profile(*to_profile); };
  return command;
}

}  // namespace fsdpbench::app
