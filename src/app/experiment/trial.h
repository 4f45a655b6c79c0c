#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "config/run_config.h"

namespace fsdpbench::app {

class Job;

/// One run of a sweep or a comparison. Returns what result.json has under "metrics", "memory", "comm",
/// "causes" and "world", the step times as "steps_ms" and how long it took as "seconds". If `keep` is not empty, the
/// run's result folder is written there. Throws what `fsdpbench run` throws, and Interrupted if the user stopped it: a
/// part of a trial is no trial. `job`: null, or the job whose rank 0 this is.
nlohmann::json run_trial(const config::RunConfig& config, Job* job, const std::filesystem::path& keep = {});

}  // namespace fsdpbench::app
