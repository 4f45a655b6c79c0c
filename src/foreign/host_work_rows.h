#pragma once

#include "foreign/job_trace.h"

namespace fsdpbench::foreign {

/// For a program without a device: adds rows of a device, made of what the host did. The innermost ops that compute or
/// copy become rows of a stream of their thread, and each range of a collective ("gloo:all_reduce") one of the
/// communicator's stream, with the facts of the record_param_comms around its issue. `rows.host` is nested, and there
/// are no rows of a device.
void add_host_work(RankRows& rows);

}  // namespace fsdpbench::foreign
