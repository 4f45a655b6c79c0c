#pragma once

#include <cstdint>

namespace fsdpbench::app {

/// From now on the first Ctrl-C or SIGTERM only sets a flag, so that a run can stop between steps and keep what it
/// has; the second ends the process at once with exit code 130.
void install_interrupt_handlers();

/// In a job of processes: a launcher passes on what the terminal has sent already, and sends its own when a rank is
/// lost, so from now on a second signal ends the process only if it comes 2 s after the first or later.
void join_repeated_interrupts();

/// True once a first such signal has come.
bool interrupt_requested();

/// When it came (base/clock.h); 0: not yet.
std::int64_t interrupt_time_ns();

}  // namespace fsdpbench::app
