#pragma once

namespace fsdpbench::app {

/// From now on the first Ctrl-C or SIGTERM only sets a flag, so that a run can stop between steps and keep what it
/// has; the second ends the process at once with exit code 130.
void install_interrupt_handlers();

/// True once a first such signal has come.
bool interrupt_requested();

}  // namespace fsdpbench::app
