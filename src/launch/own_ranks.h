#pragma once

#include <sys/types.h>
#include <functional>
#include <string>
#include <vector>

namespace fsdpbench::launch {

// Variables by which start_ranks() (own_ranks.h) tells each process of its place.
inline constexpr const char* kOwnJob = "FSDPBENCH_OWN_JOB";
inline constexpr const char* kOwnRank = "FSDPBENCH_OWN_RANK";
inline constexpr const char* kOwnRanks = "FSDPBENCH_OWN_RANKS";
inline constexpr const char* kOwnPort = "FSDPBENCH_OWN_PORT";

/// End of a rank that start_ranks() started.
struct RankEnd {
  pid_t pid = 0;
  int code = -1;        ///< exit status, 0 if a signal ended it; -1: it runs
  int signal = 0;       ///< that ended it, SIGKILL if start_ranks() did; 0: it ended by itself
  bool killed = false;  ///< by start_ranks(), because it still ran
  char state = ' ';     ///< then: as /proc/PID/stat has it, 'T' stopped, 'D' stuck in the kernel

  bool lost() const { return signal != 0; }
};

/// Times for which start_ranks() waits.
struct RankPatience {
  double limit_s = 0;       ///< ranks that still run then are killed, all of them
  double after_s = 40;      ///< and those that still run so long after the first one has ended
  double interrupt_s = 10;  ///< and so long after an interrupt
};

/// Starts this program again as `ranks` processes of this host, one rank each, with `arguments` (argv without the
/// program's name), and waits until all have ended. They are a job, as under a launcher, and go with this process,
/// however it ends. Once `interrupted` says so they get SIGTERM. Call it before this process has other threads. Throws
/// BackendError if a process cannot be started; then none is left.
std::vector<RankEnd> start_ranks(const std::vector<std::string>& arguments, int ranks, const RankPatience& patience,
                                 const std::function<bool()>& interrupted);

/// "was killed by signal 9 (Killed)", "still ran, stopped by a signal, and was killed", "ended with code 5".
std::string describe(const RankEnd& end);

}  // namespace fsdpbench::launch
