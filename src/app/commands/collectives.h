#pragma once

#include "app/collectives/collectives_arguments.h"
#include "app/console/json_part.h"

namespace fsdpbench::app {

class Job;

/// `fsdpbench collectives`. `job`: null, or the job whose rank 0 this is. Returns the process exit code; throws
/// base/error.h errors.
int collectives_command(const CollectivesArguments& arguments, Job* job);

/// The part of every other rank of a job: `order` is what rank 0's command sent.
void serve_collectives(Job& job, const JsonPart& order);
inline constexpr const char* kCollectivesService = "collectives";

}  // namespace fsdpbench::app
