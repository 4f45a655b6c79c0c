#pragma once

#include <string>

namespace fsdpbench::backend::cuda {

// NCCL tells which transports it chose in its log only. Where the user has no wishes for it, the log of this process
// goes to a file in memory; with NCCL_DEBUG or NCCL_DEBUG_FILE set, both are left alone and nothing is read. The
// default holds what NCCL says while it connects; with NCCL_DEBUG_SUBSYS=INIT,TUNING also a line per collective
// with its algorithm, which costs time.

/// Before the process's first call of NCCL that logs; later calls do nothing. Thread-safe.
void open_nccl_log();

struct NcclLog {
  std::string text;
  std::string why_not;  ///< a sentence, if there is none
};
/// What NCCL has written so far. Thread-safe.
NcclLog read_nccl_log();

}  // namespace fsdpbench::backend::cuda
