#pragma once

#include <cstdint>
#include <functional>
#include <thread>

namespace fsdpbench::app {

/// From now on Ctrl-C, SIGTERM and SIGHUP (a terminal or a connection that goes away) end the process at once with exit
/// code 130 and a word on standard error, until keep_what_is_done() is called. Writing to a pipe that nobody reads,
/// or beyond the size that `ulimit -f` allows a file, is an error like others, no signal.
void install_interrupt_handlers();

/// Whether such a signal is answered with a word: in a job only one process should, with --quiet none.
void say_interrupts(bool said);

/// From now on the first such signal only sets a flag, so that a run can stop between steps and keep what it has; it is
/// acknowledged on standard error at once, unless `quiet`. The second ends the process with exit code 130. There is no
/// way back: a signal that comes when a complete result is written must not make an interrupted run of it.
void keep_what_is_done(bool quiet);

/// Action on a signal that is not obeyed in time: while one lives, `act` is called on a thread of its own
/// `seconds` after the first signal, once; at once if that was earlier. The end of its life waits for it.
class AfterInterrupt {
 public:
  AfterInterrupt(double seconds, std::function<void()> act);
  ~AfterInterrupt();
  AfterInterrupt(const AfterInterrupt&) = delete;
  AfterInterrupt& operator=(const AfterInterrupt&) = delete;

 private:
  void wait(std::int64_t patience_ns) const;

  int over_;  // an eventfd: its life ends
  std::function<void()> act_;
  std::thread thread_;
};

/// From a signal until the step under way is cut short, and until the process is ended whatever it does: together well
/// within a second.
inline constexpr double kPatienceWithSteps_s = 0.4;
inline constexpr double kPatienceWithAll_s = 0.8;

/// In a job of processes: a launcher passes on what the terminal has sent already, and sends its own when a rank is
/// lost, so from now on a second signal ends the process only if it comes 2 s after the first or later. And Ctrl-C and
/// SIGTERM count though they were ignored from the start: a launcher behind `&` obeys them, and passes them on to ranks
/// that have inherited from its shell to ignore them.
void obey_launcher();

/// True once a first such signal has come.
bool interrupt_requested();

/// When it came (base/clock.h); 0: not yet.
std::int64_t interrupt_time_ns();

}  // namespace fsdpbench::app
