#pragma once

#include <mpi.h>

#include <functional>
#include <string_view>
#include <vector>

#include "launch/control_channel.h"

namespace fsdpbench::launch {

/// Throws BackendError with MPI's text if `result` is no success. `what`: "to split a group".
void check_mpi(int result, std::string_view what);

/// Waits until all requests are done, giving the processor away meanwhile: the longer it takes the longer, unless
/// `large` messages need this thread to go on. Throws Stopped if `stopped` says so or the
/// job has failed; then the requests are given up. Returns their statuses.
std::vector<MPI_Status> wait_all(std::vector<MPI_Request>& requests, const ControlChannel& control,
                                 const std::function<bool()>& stopped, std::string_view what,
                                 bool large = false);

}  // namespace fsdpbench::launch
