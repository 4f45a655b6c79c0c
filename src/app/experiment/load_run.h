#pragma once

#include <string>
#include <vector>

#include "app/job/job.h"
#include "config/run_config.h"

namespace fsdpbench::app {

/// As config::load_profile, but in a job (null: none) mesh.ranks is the number of its processes. Throws ConfigError if
/// an override asks for another number; what a profile says only gives way, with a note. `notes`: as
/// load_profile's.
config::RunConfig load_run(const std::string& profile, const std::vector<std::string>& overrides, const Job* job,
                           std::vector<std::string>* notes = nullptr);

}  // namespace fsdpbench::app
