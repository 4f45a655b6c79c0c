#pragma once

#include <string>

namespace fsdpbench::backend::cuda {

/// The variables set in this process's environment that change how NCCL communicates, as "NCCL_ALGO=Ring
/// NCCL_PROTO=LL": some come before the options of a run. Only those that are known; empty if none is set.
std::string nccl_environment();

}  // namespace fsdpbench::backend::cuda
