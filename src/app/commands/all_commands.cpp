#include "app/commands/command.h"

namespace fsdpbench::app {

// Each in the file of its name: a command is that file, and a row in both lists here.
Command run_command();
Command simulate_command();
Command compare_command();
Command sweep_command();
Command collectives_command();
Command calibrate_command();
Command tune_command();
Command what_if_command();
Command expect_command();
Command explain_command();
Command report_command();
Command open_command();
Command watch_command();
Command trace_explain_command();
Command trace_diff_command();
Command accept_command();
Command gate_command();
Command doctor_command();
Command help_command();
Command completion_command();
Command export_command();
Command import_command();

std::vector<Command> all_commands() {
  std::vector<Command> all;
  for (Command (*const make)() : {
           run_command,       simulate_command, compare_command, sweep_command,         collectives_command,
           calibrate_command, tune_command,     what_if_command, expect_command,        explain_command,
           report_command,    open_command,     watch_command,   trace_explain_command, trace_diff_command,
           accept_command,    gate_command,     doctor_command,  help_command,          completion_command,
           export_command,    import_command,
       }) {
    all.push_back(make());
  }
  return all;
}

}  // namespace fsdpbench::app
