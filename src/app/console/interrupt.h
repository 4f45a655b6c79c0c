#pragma once

#include <cstdint>

namespace fsdpbench::app {

/// From now on Ctrl-C, SIGTERM and SIGHUP (a terminal or a connection that goes away) end the process at once with exit
/// code 130, except while a KeepingWhatIsDone lives. Writing to a pipe that nobody reads, or beyond the size that `ulimit
/// -f` allows a file, is an error like others, no signal.
void install_interrupt_handlers();

/// While one lives, the first such signal only sets a flag, so that a run can stop between steps and keep what it has;
/// it is acknowledged on standard error at once, unless `quiet`. The second ends the process with exit code 130.
class KeepingWhatIsDone {
 public:
  explicit KeepingWhatIsDone(bool quiet);
  ~KeepingWhatIsDone();
  KeepingWhatIsDone(const KeepingWhatIsDone&) = delete;
  KeepingWhatIsDone& operator=(const KeepingWhatIsDone&) = delete;
};

/// In a job of processes: a launcher passes on what the terminal has sent already, and sends its own when a rank is
/// lost, so from now on a second signal ends the process only if it comes 2 s after the first or later.
void join_repeated_interrupts();

/// True once a first such signal has come.
bool interrupt_requested();

/// When it came (base/clock.h); 0: not yet.
std::int64_t interrupt_time_ns();

}  // namespace fsdpbench::app
