#pragma once

#include <string>

namespace fsdpbench::backend::cuda {

// NCCL tells which transports and algorithms it chose in its log only. That of this process comes through a pipe, at
// level INFO with the subsystems that tell them; what the user asked for by NCCL_DEBUG, NCCL_DEBUG_SUBSYS and
// NCCL_DEBUG_FILE is passed on to where NCCL would have written it. Subsystem TUNING is a line per collective, of rank
// 0 of each communicator.

/// Before the process's first call of NCCL that logs, and before threads read the environment, which it changes; later
/// calls do nothing. Thread-safe.
void open_nccl_log();

struct NcclLog {
  std::string text;     ///< lines that say the same of a collective are there once
  std::string why_not;  ///< a sentence, if there is none
};
/// What NCCL has written so far. Thread-safe.
NcclLog read_nccl_log();

}  // namespace fsdpbench::backend::cuda
