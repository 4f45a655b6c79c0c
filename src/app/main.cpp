#include <exception>
#include <type_traits>

#include "app/command_line.h"
#include "app/console.h"
#include "app/interrupt.h"
#include "base/error.h"

namespace fsdpbench::app {
namespace {

int execute(const CommandLine& line) {
  console().set_quiet(line.quiet);
  return std::visit(
      [](const auto& command) {
        using Command = std::decay_t<decltype(command)>;
        if constexpr (std::is_same_v<Command, RunArguments>) {
          return run_command(command);
        } else if constexpr (std::is_same_v<Command, CompareArguments>) {
          return compare_command(command);
        } else if constexpr (std::is_same_v<Command, SweepArguments>) {
          return sweep_command(command);
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

}  // namespace
}  // namespace fsdpbench::app

int main(int argc, char** argv) {
  using namespace fsdpbench;
  app::install_interrupt_handlers();
  try {
    return app::execute(app::parse_command_line(argc, argv));
  } catch (const Error& error) {
    app::console().error(error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    app::console().error(error.what());
    return static_cast<int>(ExitCode::failure);
  }
}
